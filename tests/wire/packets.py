"""Every message there is, and whatever else may stand in its place."""

from typing import get_args

import numpy as np
import pinocchio as pin
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec.structs import replace
from session_pair import make_schema, make_welcome

from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.request_parts import LastTarget, TrackingLag
from robot_runtime.core.method.sampler_parts import ClampedPrefix, ConstantSchedule, SamplerPart
from robot_runtime.core.plan.request_planner import MAX_IN_FLIGHT
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ChunkPart
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.wire.fields import INT64_MAX, MAX_MAGNITUDE
from robot_runtime.wire.messages import (
    Cancel,
    Dropped,
    DropReason,
    ErrorCode,
    ErrorReply,
    Goodbye,
    Heartbeat,
    Hello,
    Packet,
    Readiness,
    RefusalCode,
    Refused,
)

IDS = st.integers(0, INT64_MAX)
COUNTS = st.integers(0, 2**31 - 1)
TEXT = st.text(max_size=20)
NUMBERS = st.floats(-MAX_MAGNITUDE, MAX_MAGNITUDE)


def vectors(size: st.SearchStrategy[int] | int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float64, size, elements=NUMBERS)


def tables(max_rows: int = 60, max_columns: int = 20) -> st.SearchStrategy[np.ndarray]:
    shape = st.tuples(st.integers(1, max_rows), st.integers(1, max_columns))
    dtype = st.sampled_from([np.float32, np.float64])
    return dtype.flatmap(lambda d: shape.map(lambda s: np.arange(s[0] * s[1], dtype=d).reshape(s)))


@st.composite
def observations(draw) -> Observation:
    num_joints = draw(st.integers(0, 8))
    pose = pin.SE3(pin.Quaternion(*draw(st.permutations([0.5, 0.1, -0.7, 0.3]))).normalized(), np.ones(3))
    state = RobotState(
        t_ns=draw(IDS),
        q=draw(vectors(num_joints)),
        dq=draw(vectors(num_joints)),
        X_BE=draw(st.sampled_from([None, pose])),
        gripper_width=draw(st.none() | NUMBERS),
        x_WB=draw(st.none() | vectors(3)),
        V_WB_B=draw(st.none() | vectors(3)),
    )
    stamps = {name: draw(st.none() | IDS) for name in state.parts}
    parts = {name: replace(part, t_ns=stamps[name]) for name, part in state.parts.items()}
    newest_ns = max((stamp for stamp in stamps.values() if stamp is not None), default=None)
    state = RobotState(t_ns=state.t_ns, parts=parts, t_newest_ns=newest_ns)
    sizes = draw(st.dictionaries(TEXT, st.sampled_from([(0, 4), (3, 5), (64, 48)]), max_size=3))
    images = {
        name: Image(t_ns=draw(IDS), pixels=np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8))
        for name, size in sizes.items()
    }
    environment_state = draw(vectors(st.integers(0, 900)))
    return Observation(state=state, images=images, environment_state=environment_state, task=draw(TEXT))


EARLIER_AND_OWN_IDS = st.lists(IDS, min_size=1, max_size=MAX_IN_FLIGHT + 1, unique=True).map(sorted)
REQUESTS = st.builds(
    lambda ids, **values: ChunkRequest(request_id=ids[-1], in_flight=tuple(ids[:-1]), **values),
    ids=EARLIER_AND_OWN_IDS,
    epoch=IDS,
    observation=observations(),
    prev_action_chunk=st.none() | tables(),
    inference_delay=st.integers(0, 2**31 - 1),
    sampler=st.builds(ConstantSchedule, num_steps=st.none() | st.integers(1, 50))
    | st.builds(ClampedPrefix, num_steps=st.none() | st.integers(1, 50)),
    seed=IDS,
    deadline_ns=st.integers(1, INT64_MAX),
)
ROLL_FORWARDS = (
    st.none()
    | st.just(LastTarget())
    | st.builds(TrackingLag, time_constant_s=st.floats(1e-3, 1.0, exclude_min=True))
)
CAPABILITIES = st.builds(
    Capabilities,
    samplers=st.permutations(get_args(SamplerPart)).map(lambda parts: tuple(parts[:3])),
    max_inference_delay=st.integers(0, 6),
    recipe=TEXT,
    roll_forward=ROLL_FORWARDS,
    execution_horizon=st.none() | st.integers(1, 6),
)
PARTS = st.builds(
    ChunkPart,
    request_id=IDS,
    epoch=IDS,
    t_obs_ns=IDS,
    first_row=IDS,
    rows=tables(),
    is_last=st.booleans(),
    queue_ns=IDS,
    infer_ns=IDS,
)
MESSAGES = st.one_of(
    REQUESTS,
    PARTS,
    st.builds(Hello, robot=TEXT, schema=st.just(make_schema())),
    st.builds(lambda can: make_welcome(tasks=("pick", "place"), capabilities=can), CAPABILITIES),
    st.builds(
        Readiness, samplers=st.lists(TEXT, max_size=3).map(tuple), max_batch=COUNTS, pieces_left=COUNTS
    ),
    st.builds(Refused, code=st.sampled_from(RefusalCode), reason=TEXT),
    st.builds(Cancel, request_id=IDS, epoch=IDS),
    st.builds(Dropped, request_id=IDS, epoch=IDS, reason=st.sampled_from(DropReason)),
    st.builds(ErrorReply, code=st.sampled_from(ErrorCode), message=TEXT, request_id=st.none() | IDS),
    st.builds(Heartbeat, t_ns=IDS),
    st.builds(Heartbeat, t_ns=IDS),
    st.just(Goodbye()),
)
PACKETS = st.builds(Packet, TEXT, IDS, MESSAGES)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXT | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
