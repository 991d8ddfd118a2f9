"""Rehearsals: a request of nobody's, gone through just before one is to be expected, warms the code up.

In a hot loop the Python of a round trip takes some 0.1 ms; after 33 ms in which a core slept or others had it
it takes several times as long. Both sides rehearse when a heartbeat says that a request is near
(`Heartbeat.is_request_near`): that costs more than it saves, but at a time when nobody waits. They use the
real codec and sessions, of their own; nothing of it reaches anybody. Here is what is rehearsed, and the
robot's side of it; the server's is in `server/rehearsal.py`.
"""

from itertools import count

import numpy as np
import pinocchio as pin

from robot_runtime.core.action import NS_PER_MS, NS_PER_S, ActionSpec, ChunkPart, JointPosition
from robot_runtime.core.capabilities import Capabilities
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.sampler_parts import ConstantSchedule
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Image, Observation, RobotState
from robot_runtime.wire.client_session import ClientSession
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.messages import ChunkReply, Heartbeat, Hello, Packet, Welcome

NUM_TIMES = 2
"""How often a request is gone through: the second time finds in the caches what the first has fetched."""
NOBODY = "nobody"
SPEC = ActionSpec(fields=(JointPosition(7),), horizon=16, dt_ns=33 * NS_PER_MS)
_SIZE = (64, 64)  # of an image: large enough to travel in a frame of its own
SCHEMA = Schema(
    action_fields=SPEC.fields, num_joints=7, has_gripper=True, has_base=False, cameras={"camera": _SIZE}
)
HELLO = Packet(NOBODY, 0, Hello(robot=NOBODY, schema=SCHEMA))
_ROWS = np.zeros((SPEC.horizon, SPEC.dim), np.float32)
_WELCOME = Welcome(
    policy=NOBODY,
    schema=SCHEMA,
    action_spec=SPEC,
    tasks=(),
    capabilities=Capabilities(samplers=(ConstantSchedule,)),
    heartbeat_ns=NS_PER_S,
)
_OBSERVATION = Observation(
    state=RobotState(t_ns=0, q=np.zeros(7), dq=np.zeros(7), X_BE=pin.SE3.Identity(), gripper_width=0.0),
    images={"camera": Image(t_ns=0, pixels=np.zeros((*_SIZE, 3), np.uint8))},
)


def is_request_near(received: Packet | ProtocolError) -> bool:
    """Whether that packet is a heartbeat that goes ahead of a request."""
    if isinstance(received, ProtocolError):
        return False
    return isinstance(received.message, Heartbeat) and received.message.is_request_near


def nobodys_request(request_id: int) -> ChunkRequest:
    """A request without a plan; fits SCHEMA."""
    return ChunkRequest(
        request_id=request_id,
        epoch=0,
        observation=_OBSERVATION,
        prev_action_chunk=None,
        inference_delay=0,
        sampler=ConstantSchedule(),
        seed=0,
        deadline_ns=NS_PER_S,
    )


class ClientRehearsal:
    """A session of nobody's with a server that is not there; owned and called by one thread."""

    def __init__(self) -> None:
        self._session = ClientSession(client_id=NOBODY, robot=NOBODY, schema=SCHEMA, session_ids=iter([0]))
        self._session.connect(0)
        self._session.receive(Packet(NOBODY, 0, _WELCOME), 0)
        self._request_ids = count()

    def run(self, now_ns: int) -> None:
        """Ask and be answered, NUM_TIMES."""
        for _ in range(NUM_TIMES):
            request_id = next(self._request_ids)
            self._session.submit(nobodys_request(request_id), now_ns)
            for packet in self._session.packets_to_send():
                encode(packet)
            part = ChunkPart(
                request_id=request_id, epoch=0, t_obs_ns=0, first_row=0, rows=_ROWS, is_last=True
            )
            answer = Packet(NOBODY, 0, ChunkReply(part=part, queue_ns=0, infer_ns=0))
            self._session.receive(decode(encode(answer)), now_ns)
            while self._session.next_event() is not None:
                pass
