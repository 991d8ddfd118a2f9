"""`rehearse`: pack and unpack what is about to be packed and unpacked, so that its code is in the caches.

In a hot loop the codec's part of a round trip takes some 40 µs; after 33 ms in which other programs had the
core it takes several hundred. Both sides rehearse when a heartbeat says that a request is near
(`Heartbeat.is_request_near`): that costs as much as it saves, but at a time when nobody waits.
"""

from functools import cache

import numpy as np
import pinocchio as pin

from robot_runtime.core.action import ChunkPart
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.sampler_parts import ConstantSchedule
from robot_runtime.core.state import Image, Observation, RobotState
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.messages import ChunkReply, Heartbeat, Packet

_SIZE = 64  # of an image: large enough to travel in a frame of its own


def is_request_near(received: Packet | ProtocolError) -> bool:
    """Whether that packet is a heartbeat that goes ahead of a request."""
    if isinstance(received, ProtocolError):
        return False
    return isinstance(received.message, Heartbeat) and received.message.is_request_near


def rehearse() -> None:
    """Take a request and an answer of nobody through the codec."""
    for packet in _packets():
        decode(encode(packet))


@cache
def _packets() -> tuple[Packet, ...]:
    state = RobotState(t_ns=0, q=np.zeros(7), dq=np.zeros(7), X_BE=pin.SE3.Identity(), gripper_width=0.0)
    pixels = np.zeros((_SIZE, _SIZE, 3), np.uint8)
    request = ChunkRequest(
        request_id=0,
        epoch=0,
        observation=Observation(state=state, images={"camera": Image(t_ns=0, pixels=pixels)}),
        prev_action_chunk=np.zeros((16, 8)),
        inference_delay=0,
        sampler=ConstantSchedule(),
        seed=0,
        deadline_ns=1,
    )
    rows = np.zeros((16, 8), np.float32)
    part = ChunkPart(request_id=0, epoch=0, t_obs_ns=0, first_row=0, rows=rows, is_last=True)
    answer = ChunkReply(part=part, queue_ns=0, infer_ns=0)
    return tuple(Packet("nobody", 0, message) for message in (request, answer))
