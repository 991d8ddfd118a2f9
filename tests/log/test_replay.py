"""What went into an executor, fed to another one, gives the same commands to the last bit."""

from contextlib import suppress

import msgspec
import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from robot_runtime.core.configuration import Foreign
from robot_runtime.core.journal import Asked, Began, PartCame, Ticked
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.plan.kinematics import ModelKinematics
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.state import RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.forms import FormError, Forms
from robot_runtime.log.replay import replay
from tests.examples import examples
from tests.log.robots import FR3, KINDS, LEFT, RIGHT, Life
from tests.source_tree import ROOT

RUNS = [(method, kind) for i, method in enumerate(METHODS) for kind in [list(KINDS)[i % 3]]]
"""Every method, on one of the robots."""


def through_a_file(entries):
    """As the log writes and reads them."""
    forms = Forms()
    return [forms.decode(forms.encode(entry)) for entry in entries]


def lives(method: str, kind: str) -> Life:
    return Life(
        kind if method != "a2c2" else "one arm",
        method,
        seed=len(method) + len(kind),
        is_armed_by_hand=len(method) % 2 == 0,
    )


@pytest.mark.parametrize(("method", "kind"), RUNS)
def test_every_method_with_streams_losses_faults_and_people_replays_to_the_same_bits(method, kind):
    life = lives(method, kind)
    entries = life.run(80)
    done = replay(through_a_file(entries))
    assert done.difference is None
    assert done.ticks == 80


def test_those_runs_have_seen_every_mode_and_every_kind_of_entry():
    life = Life("one arm", "time-aligned", seed=3)
    kinds = {type(entry) for entry in life.run(400)}
    assert life.modes == set(Mode)
    assert {kind.__name__ for kind in kinds} >= {
        "Began", "EpochSet", "WasReset", "Looked", "Asked", "AskedSoon", "PartCame", "RequestLost",
        "ServerLost", "Stopped", "Ticked", "TookOver", "Led", "HandedBack",
    }  # fmt: skip
    assert replay(through_a_file(life.entries)).difference is None


def test_one_bit_of_one_answer_is_found_where_it_first_matters():
    entries = Life("one arm", "time-aligned", seed=5).run(100)
    first = next(i for i, entry in enumerate(entries) if isinstance(entry, PartCame) and entry.splice)
    part = entries[first].part
    rows = part.rows.copy()
    rows[:, 0] = np.nextafter(rows[:, 0], 10.0)
    entries[first] = PartCame(type(part)(**{**fields_of(part), "rows": rows}), *rest_of(entries[first]))
    difference = replay(entries).difference
    assert difference is not None
    before = sum(isinstance(entry, Ticked) for entry in entries[:first])
    assert difference.tick >= before


def fields_of(part):
    return {name: getattr(part, name) for name in (getattr(part, "__struct_fields__", None) or vars(part))}


def rest_of(entry: PartCame):
    return entry.now_ns, entry.outcome, entry.splice


def test_values_come_back_to_the_last_bit_nan_and_infinity_too():
    forms, odd = Forms(), np.array([np.nan, np.inf, -0.0, 5e-324, 0.1])
    pose = pin.SE3.Random()
    state = RobotState(t_ns=-5, q=odd, dq=odd, X_BE=pose, measured={"force": odd}, t_newest_ns=3)
    back = forms.decode(forms.encode([state]))[0]
    assert back.q.tobytes() == odd.tobytes()
    assert back.measured["force"].tobytes() == odd.tobytes()
    assert back.X_BE.homogeneous.tobytes() == pose.homogeneous.tobytes()
    assert (back.t_ns, back.t_newest_ns) == (-5, 3)
    assert not back.q.flags.writeable


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_arrays_keep_kind_and_shape(dtype):
    forms, array = Forms(), np.arange(12).reshape(3, 4).astype(dtype)
    back = forms.decode(forms.encode(array.T))
    assert back.dtype == dtype
    assert np.array_equal(back, array.T)
    assert forms.decode(forms.encode(np.zeros((0, 4), dtype))).shape == (0, 4)


def test_bytes_that_are_no_value_of_ours_are_refused():
    forms = Forms()
    for data in (
        b"",
        b"\xc1",
        forms.encode({"": "os.system", "command": "rm"}),
        forms.encode({"": "Ticked"}),
    ):
        with pytest.raises(FormError):
            forms.decode(data)


# ---- kinematics --------------------------------------------------------------------------------------------

PLAIN_JOINTS = tuple(
    getattr(pin, f"JointModel{kind}")
    for kind in ("RX", "RY", "RZ", "PX", "PY", "PZ", "SphericalZYX", "Translation")
)


def placement(rng) -> pin.SE3:
    return pin.SE3(pin.Quaternion(rng.normal(size=4)).normalized().matrix(), rng.normal(size=3))


def drawn_joint(rng, *, may_have_several=True):
    axis = rng.normal(size=3)
    drawn = rng.integers(0, len(PLAIN_JOINTS) + 2 + may_have_several)
    if drawn < len(PLAIN_JOINTS):
        return PLAIN_JOINTS[drawn]()
    if drawn < len(PLAIN_JOINTS) + 2:
        kinds = (pin.JointModelRevoluteUnaligned, pin.JointModelPrismaticUnaligned)
        return kinds[drawn - len(PLAIN_JOINTS)](axis / np.linalg.norm(axis))
    several = pin.JointModelComposite()
    for _ in range(rng.integers(1, 4)):
        several.addJoint(drawn_joint(rng, may_have_several=False), placement(rng))
    return several


def drawn_kinematics(seed: int) -> ModelKinematics:
    rng, model = np.random.default_rng(seed), pin.Model()
    for i in range(rng.integers(1, 9)):
        model.addJoint(int(rng.integers(0, model.njoints)), drawn_joint(rng), placement(rng), f"j{i}")
    model.addFrame(pin.Frame("hand", model.njoints - 1, placement(rng), pin.FrameType.BODY))
    frame = "universe" if seed % 10 == 0 else "hand"
    return ModelKinematics(model, frame, X_FE=placement(rng), p_BA=(0.1, 0.2, 0.3), yaw=0.7 * (seed % 2))


ROBOTS = [
    *(each.model_kinematics for each in (LEFT, RIGHT, FR3)),
    ModelKinematics(pin.buildModelFromUrdf(str(ROOT / "examples" / "fr3_arm.urdf")), "hand"),
    *map(drawn_kinematics, range(100)),
]


@pytest.mark.parametrize("kinematics", ROBOTS)
def test_kinematics_come_back_to_the_same_bits(kinematics):
    forms = Forms()
    back = forms.decode(forms.encode(kinematics.forward)).__self__
    assert forms.encode(back) == forms.encode(kinematics)
    rng, n = np.random.default_rng(0), kinematics.model.nq
    for _ in range(20):
        q = pin.normalize(kinematics.model, rng.normal(size=n))
        assert back.forward(q).homogeneous.tobytes() == kinematics.forward(q).homogeneous.tobytes()
        assert back.jacobian(q).tobytes() == kinematics.jacobian(q).tobytes()


@examples(300)
@given(seed=st.integers(1, 50), data=st.data())
def test_damaged_kinematics_are_refused_or_are_some_arm(seed, data):
    forms, kinematics = Forms(), drawn_kinematics(seed)
    content = bytearray(forms.encode(kinematics.forward))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        back = forms.decode(bytes(content))
    except FormError:
        return
    if callable(back):
        with suppress(ValueError):  # of another number of joints
            back(pin.neutral(back.__self__.model))
            back.__self__.jacobian(pin.neutral(back.__self__.model))


def test_kinematics_of_an_older_log_are_never_read_and_their_robot_is_asked_for():
    entries = Life("one arm", "vlash", seed=1).run(20)
    forms = Forms()
    form = msgspec.msgpack.decode(forms.encode(entries[0]))
    model = {"": "ModelKinematics", "model": Ext(4, b"22 serialization::archive 19 0"), "frame": "hand"}
    form["configuration"]["hand_pose"] = {"arm": {"": "HandPoseOf", "kinematics": model}}
    old = forms.decode(msgspec.msgpack.encode(form))
    assert isinstance(old.configuration.hand_pose["arm"], Foreign)
    with pytest.raises(InvalidValueError, match=r"in the form of an older version.*--robot"):
        replay([old, *entries[1:]])


def test_a_joint_that_a_log_does_not_hold_makes_its_robot_be_asked_for():
    model = pin.Model()
    model.addJoint(0, pin.JointModelHX(0.3), pin.SE3.Identity(), "screw")
    model.addFrame(pin.Frame("hand", 1, pin.SE3.Identity(), pin.FrameType.BODY))
    back = through_a_file([ModelKinematics(model, "hand").forward])
    assert back == [Foreign("a joint of the kind JointModelHX")]


def test_a_model_without_joints_or_with_endless_ones_is_refused():
    endless = pin.Model()
    endless.addJoint(0, pin.JointModelRUBX(), pin.SE3.Identity(), "wheel")
    for model in (pin.Model(), endless):
        with pytest.raises(ValueError, match="expected a model of one or more joints"):
            ModelKinematics(model, "universe")


# ---- people's own ------------------------------------------------------------------------------------------


def test_a_robot_with_functions_of_its_own_is_asked_for():
    entries = Life("one arm", "vlash", seed=1).run(20)
    own = entries[0].configuration
    functions = type(own)(**{**vars(own), "hand_pose": {"arm": lambda q: pin.SE3.Identity()}})
    logged = through_a_file([Began(functions), *entries[1:]])
    assert isinstance(logged[0].configuration.hand_pose["arm"], Foreign)
    with pytest.raises(InvalidValueError, match=r"hand_pose <function .*> .*--robot path/to/file.py:robot"):
        replay(logged)


def test_a_head_of_ones_own_is_asked_for_and_taken():
    class Mine:
        lead = 1

        def __init__(self, spec):
            self.action_spec = spec

        def correction(self, observation, chunk, k):
            return np.full(self.action_spec.dim, 1e-4)

    life = Life("one arm", "a2c2", seed=2)
    own = life.entries[0].configuration
    head = Mine(own.action_spec)
    life.entries[0] = Began(type(own)(**{**vars(own), "correction_head": head}))
    life.executor._corrector._head = head
    logged = through_a_file(life.run(80))
    with pytest.raises(InvalidValueError, match=r"--correction path/to/file.py:head"):
        replay(logged)
    assert replay(logged, correction_head=head).difference is None


def test_requests_are_compared_too():
    entries = Life("one arm", "committed-prefix", seed=6).run(60)
    at = next(i for i, entry in enumerate(entries) if isinstance(entry, Asked))
    request = entries[at].request
    changed = type(request)(**{**fields_of(request), "seed": request.seed + 1})
    entries[at] = Asked(entries[at].observation, changed)
    assert replay(entries).difference.what.startswith("Asked.seed: the log has")
