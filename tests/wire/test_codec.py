import contextlib
from dataclasses import fields, is_dataclass

import msgspec
import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packets import PACKETS, PLAIN
from session_pair import SPEC, make_request, make_schema, make_welcome

from robot_runtime.core.plan.request_planner import MAX_IN_FLIGHT
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ChunkPart
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.fields import INT64_MAX
from robot_runtime.wire.frames import ProtocolError, WireLimits
from robot_runtime.wire.messages import VERSION, Goodbye, Packet
from tests.examples import examples


def assert_same(a: object, b: object) -> None:
    """Equal field by field; arrays also in type; a pose up to the rounding of its quaternion."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, pin.SE3):
        assert a.isApprox(b, 1e-12)
    elif hasattr(a, "items"):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif is_dataclass(a) and not isinstance(a, type):
        for f in fields(a):
            assert_same(getattr(a, f.name), getattr(b, f.name))
    elif isinstance(a, msgspec.Struct):
        for name in a.__struct_fields__:
            assert_same(getattr(a, name), getattr(b, name))
    else:
        assert a == b


@given(PACKETS)
@examples(150)
def test_decode_undoes_encode(packet):
    assert_same(decode([bytes(frame) for frame in encode(packet)]), packet)


@given(st.lists(st.binary(max_size=200), max_size=4))
@examples(300)
def test_random_bytes_raise_only_protocol_errors(frames):
    with contextlib.suppress(ProtocolError):
        decode(frames)


@given(PACKETS, st.data())
@examples(400)
def test_a_message_with_one_wrong_field_is_read_or_refused(packet, data):
    frames = [bytes(frame) for frame in encode(packet)]
    header = msgspec.msgpack.decode(frames[0])
    body = header[3]
    if body and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(body)))
        if data.draw(st.booleans()):
            body[key] = data.draw(PLAIN)
        else:
            del body[key]
    else:
        header[data.draw(st.integers(0, 3))] = data.draw(PLAIN)
    frames[0] = msgspec.msgpack.encode(header)
    with contextlib.suppress(ProtocolError):
        decode(frames)


@given(PACKETS, st.data())
@examples(400)
def test_damaged_bytes_raise_only_protocol_errors(packet, data):
    frames = [bytearray(frame) for frame in encode(packet)]
    i = data.draw(st.integers(0, len(frames) - 1))
    at = data.draw(st.integers(0, len(frames[i]) - 1))
    match data.draw(st.sampled_from(["flip", "truncate", "drop", "double", "extra"])):
        case "flip":
            frames[i][at] ^= data.draw(st.integers(1, 255))
        case "truncate":
            del frames[i][at:]
        case "drop":
            del frames[i]
        case "double":
            frames.insert(i, frames[i])
        case "extra":
            frames.append(bytearray(b"more"))
    with contextlib.suppress(ProtocolError):
        decode([bytes(frame) for frame in frames])


def packet_of(message) -> Packet:
    return Packet("me", 5, message)


def image_request(pixels: np.ndarray) -> ChunkRequest:
    state = RobotState(t_ns=1, q=np.zeros(2), dq=np.zeros(2))
    observation = Observation(state=state, images={"wrist": Image(t_ns=1, pixels=pixels)})
    return make_request(3, observation=observation)


def test_large_arrays_are_views_on_both_sides():
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels.flags.writeable = False  # or a request has a copy
    frames = encode(packet_of(image_request(pixels)))
    assert np.shares_memory(np.asarray(frames[1]), pixels)
    received = bytes(frames[1])
    decoded = decode([frames[0], received]).message.observation.images["wrist"].pixels
    assert np.shares_memory(decoded, np.frombuffer(received, np.uint8))
    assert not decoded.flags.writeable


def test_unaligned_floats_are_copied_into_place():
    rows = np.arange(2000.0).reshape(100, 20)
    part = ChunkPart(request_id=1, epoch=0, t_obs_ns=1, first_row=0, rows=rows, is_last=True)
    frames = encode(packet_of(part))
    shifted = memoryview(bytearray(1 + rows.nbytes))[1:]
    shifted[:] = frames[1]
    decoded = decode([frames[0], shifted]).message.rows
    assert decoded.flags.aligned
    np.testing.assert_array_equal(decoded, rows)


def test_rows_with_nan_are_refused_and_name_their_request():
    rows = np.full((2, 2), np.nan)
    part = ChunkPart(request_id=7, epoch=3, t_obs_ns=1, first_row=0, rows=rows, is_last=True)
    with pytest.raises(ProtocolError, match="NaN") as caught:
        decode(encode(packet_of(part)))
    error = caught.value
    assert (error.client_id, error.session, error.request_id, error.epoch) == ("me", 5, 7, 3)


def test_another_version_names_both():
    header = msgspec.msgpack.decode(encode(packet_of(Goodbye()))[0])
    header[0] = VERSION + 1
    with pytest.raises(ProtocolError, match=f"version {VERSION}, the peer speaks {VERSION + 1}"):
        decode([msgspec.msgpack.encode(header)])


@pytest.mark.parametrize(
    "header", [[1, "Goodbye", "me", 5, {}], [VERSION + 1], [VERSION + 1, {"who": "me"}, [], "more"]]
)
def test_the_version_is_readable_whatever_else_has_changed(header):
    with pytest.raises(ProtocolError) as caught:
        decode([msgspec.msgpack.encode(header)])
    assert caught.value.their_version == header[0]


def changed_request(**changes) -> list[bytes]:
    frames = encode(packet_of(image_request(np.zeros((4, 6, 3), np.uint8))))
    header = msgspec.msgpack.decode(frames[0])
    header[3] |= changes
    return [msgspec.msgpack.encode(header), *frames[1:]]


def seen(**changes) -> dict:
    """The observation of that request, changed: its parts by name, or what else it holds."""
    header = msgspec.msgpack.decode(changed_request()[0])
    t_obs_ns, parts, environment_state, images, measured = header[3]["observation"]
    images = changes.pop("images", images)
    return {"observation": [t_obs_ns, parts | changes, environment_state, images, measured]}


IMAGE = ["wrist", 1, "u1", [4, 6, 3], bytes(72)]
HALF_TURN = [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"request_id": -1}, "int. >= 0 .*request_id"),
        ({"epoch": 2**63}, f"int. <= {INT64_MAX} .*epoch"),
        ({"seed": True}, "Expected .int., got .bool. .*seed"),
        ({"deadline_ns": 0}, "int. >= 1 .*deadline_ns"),
        ({"in_flight": 1}, "Expected .array., got .int. .*in_flight"),
        ({"in_flight": [0, "1"]}, "Expected .int., got .str. .*in_flight"),
        ({"in_flight": [-1]}, "int. >= 0 .*in_flight"),
        ({"in_flight": [1, 1]}, r"must rise and stay below the request's own id 3, got \[1, 1\]"),
        ({"in_flight": [2, 0]}, r"must rise .*got \[2, 0\]"),
        ({"in_flight": [2, 3]}, r"below the request's own id 3, got \[2, 3\]"),
        (
            {"request_id": 99, "in_flight": list(range(MAX_IN_FLIGHT + 1))},
            f"at most {MAX_IN_FLIGHT} requests, got {MAX_IN_FLIGHT + 1}",
        ),
        ({"task": "x" * 4097}, "length <= 4096 .*task"),
        ({"surprise": 1}, "surprise"),
        (seen(arm=["arm", [1e12, 0.0], [0.0, 0.0], None]), "float. <= 1000000000.0 .*observation"),
        (seen(arm=["arm", [0.0, float("nan")], [0.0, 0.0], None]), "float.* .*observation"),
        (seen(arm=["arm", [0.0, 0.0], [0.0, float("-inf")], None]), "float.* .*observation"),
        (seen(arm=["arm", [0.0, 0.0], [0.0], None]), "of one length, got 2 and 1"),
        (seen(gripper=["gripper", float("inf")]), "float.* .*observation"),
        (seen(base=["base", [0.0, 0.0], None]), "length 3, got 2 .*observation"),
        (seen(arm=["arm", [0.0, 0.0], [0.0, 0.0], [1.0] * 7]), "unit quaternion"),
        (seen(arm=["leg", [0.0, 0.0]]), "leg.* .*observation"),
        (seen(**{"": ["gripper", 0.0]}), "length >= 1 .*observation"),
        ({"sampler": {"type": "Guess", "num_steps": 1}}, "Guess.* .*sampler"),
        ({"sampler": {"type": "ConstantSchedule"}}, "num_steps.* .*sampler"),
        ({"sampler": {"type": "ConstantSchedule", "num_steps": "many"}}, "str.* .*num_steps"),
        ({"sampler": {"type": "ConstantSchedule", "num_steps": 1, "hurry": 1}}, "hurry.* .*sampler"),
        ({"prev_action_chunk": ["f2", [1, 2], bytes(4)]}, "f2.* .*prev_action_chunk"),
        ({"prev_action_chunk": ["f4", [1, 2, 1], bytes(8)]}, "length 2, got 3 .*prev_action_chunk"),
        (
            {"prev_action_chunk": ["f4", [1, 2], bytes(9)]},
            r"prev_action_chunk has 9 bytes, not what its shape \(1, 2\) says",
        ),
        ({"prev_action_chunk": ["f4", [1, 1], np.float32(np.nan).tobytes()]}, "prev_action_chunk holds NaN"),
        ({"prev_action_chunk": ["f4", [2**40, 1], b""]}, "prev_action_chunk"),
        ({"prev_action_chunk": ["f8", [1, 2], None]}, "prev_action_chunk has no frame"),
        (seen(images=[["wrist", 1, "u1", [4, 6, 4], bytes(96)]]), "4 .*observation"),
        (seen(images=[["wrist", -1, "u1", [4, 6, 3], bytes(72)]]), "int. >= 0 .*observation"),
        (seen(images=[IMAGE, IMAGE]), "two images of one camera"),
    ],
)
def test_a_field_that_is_not_what_it_should_be_is_named(changes, complaint):
    with pytest.raises(ProtocolError, match=complaint) as caught:
        decode(changed_request(**changes))
    assert (caught.value.client_id, caught.value.session) == ("me", 5)


def test_the_same_request_unchanged_is_read():
    changes = seen(images=[IMAGE], arm=["arm", [0.0, 0.0], [0.0, 0.0], HALF_TURN])
    request = decode(changed_request(**changes)).message
    np.testing.assert_allclose(request.observation.state.X_BE.rotation, np.diag([1.0, -1.0, -1.0]))


def test_frames_that_nobody_names_are_refused():
    with pytest.raises(ProtocolError, match="1 array frames, 0 are named"):
        decode([*changed_request(), b"more"])


def test_sizes_are_limited_on_both_sides():
    packet = packet_of(image_request(np.zeros((64, 64, 3), np.uint8)))
    frames = encode(packet)
    for limits in (
        WireLimits(header=10),
        WireLimits(frame=5000),
        WireLimits(total=9000),
        WireLimits(num_frames=1),
    ):
        with pytest.raises(ProtocolError):
            decode(frames, limits=limits)
        with pytest.raises(ProtocolError):
            encode(packet, limits=limits)


def test_an_oversized_header_is_refused_unread():
    with pytest.raises(ProtocolError, match="header has 70000 bytes"):
        decode([b"\x90" * 70_000])


def test_deeply_nested_and_extension_headers_are_refused():
    for header in (
        b"\x91" * 60_000 + b"\x90",
        b"\x94" + bytes([VERSION]) + b"\xa2me\x05" + b"\x91" * 60_000 + b"\x90",
        b"\x94" + bytes([VERSION]) + b"\xa2me\x05\x81\xa1x" + b"\x81\xa1x" * 20_000 + b"\xc0",
        msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x")),
        msgspec.msgpack.encode({1: 2}),
    ):
        with pytest.raises(ProtocolError):
            decode([header])


def test_objects_do_not_travel():
    rows = np.array([[object()]])
    part = ChunkPart(request_id=1, epoch=0, t_obs_ns=1, first_row=0, rows=rows, is_last=True)
    with pytest.raises(ProtocolError, match="object"):
        encode(packet_of(part))


def test_a_jpeg_is_refused_where_nobody_decodes_or_of_another_shape():
    packet = packet_of(image_request(np.zeros((8, 8, 3), np.uint8)))
    frames = encode(packet, encode_jpeg=lambda pixels: b"jpeg")
    assert frames[1] == b"jpeg"
    with pytest.raises(ProtocolError, match="does not decode"):
        decode(frames)

    def refuse(buffer, shape):
        raise ValueError(f"not {shape}")

    with pytest.raises(ProtocolError, match="not a JPEG of shape"):
        decode(frames, decode_jpeg=refuse)


def test_a_chunk_of_fifty_rows_fits_in_one_frame():
    rows = np.zeros((50, 14))
    part = ChunkPart(request_id=1, epoch=0, t_obs_ns=1, first_row=0, rows=rows, is_last=True)
    assert len(encode(packet_of(part))) == 1
    assert SPEC.horizon < 50


FIELD = {"kind": "joint_position", "reference": "absolute"}
GRIPPER = {"kind": "gripper_width"}
ONE_COLUMN = ["f8", [3, 1], bytes(24)]


def can(**values: object) -> dict:
    return {"info": {"capabilities": {"samplers": ["ConstantSchedule"]} | values}}


def rows_of(field: dict, *, horizon: int = 6, dt_ns: int = 9) -> dict:
    return {"info": {"action_spec": {"fields": [field], "horizon": horizon, "dt_ns": dt_ns}}}


def robot(**values: object) -> dict:
    return {"info": {"schema": make_schema().to_dict() | values}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (can(samplers=["Telepathy"]), "samplers"),
        (can(max_inference_delay=-1), "max_inference_delay"),
        (can(roll_forward={"type": "TrackingLag", "time_constant_s": 0.0}), "time constant is positive"),
        (can(roll_forward={"type": "CrystalBall"}), "CrystalBall"),
        (can(execution_horizon=0), "execution horizon of 1 to 6"),
        (can(execution_horizon=2**40), "execution horizon of 1 to 6"),
        ({"heartbeat_ns": 1}, "heartbeat_ns"),
        ({"heartbeat_ns": 2**63}, "heartbeat_ns"),
        ({"info": {"n_obs_steps": 2**40}}, "n_obs_steps 1099511627776; expected 1 to 64"),
        ({"info": {"name": "two\nlines"}}, "a line of 1 to 256 characters"),
        ({"info": {"nmae": "x"}}, "nmae"),
        (rows_of(GRIPPER | {"dim": 1}, horizon=2**40), "1..4096"),
        (rows_of(GRIPPER | {"dim": 1}, dt_ns=2**62), "1..60000000000"),
        (rows_of(FIELD | {"dim": -7}), "1 to 128 joints"),
        (rows_of(FIELD | {"dim": 2**40}), "1 to 128 joints"),
        (rows_of(GRIPPER | {"dim": 3}), "has 1 columns"),
        (robot(cameras={"a": [2**40, 6]}), "1 to 8192 pixels"),
        (robot(cameras={"a\n": [4, 6]}), "a camera's name"),
        (robot(parts={"arm": {"kind": "arm", "num_joints": -7, "has_hand": True}}), "1 to 128 joints"),
        (robot(parts={"arm": {"kind": "leg"}}), "unknown part 'leg'; valid: arm, gripper, base"),
        (robot(parts={"arm": {"kind": "arm", "num_joints": 7}}), "it has no 'has_hand'"),
        ({"row_statistics": [ONE_COLUMN, ONE_COLUMN, True]}, "have shape"),
    ],
)
def test_a_welcome_that_declares_what_does_not_exist_is_refused(changes, words):
    frames = encode(Packet("me", 5, make_welcome()))
    header = msgspec.msgpack.decode(frames[0])
    header[3] |= changes | {"info": header[3]["info"] | changes.get("info", {})}
    with pytest.raises(ProtocolError, match=words):
        decode([msgspec.msgpack.encode(header), *frames[1:]])
