"""libzmq sockets of both ends: their limits, and waiting for them and a doorbell."""

from collections.abc import Sequence
from itertools import count

import zmq

from robot_runtime.core.plan.request_planner import MAX_IN_FLIGHT
from robot_runtime.mailbox import Doorbell
from robot_runtime.wire.frames import LIMITS

HANDSHAKE_MS = 20_000
"""A connection that has not greeted by then is closed. Greeting takes two round trips, of up to 4 s."""
HIGH_WATER_MARK = MAX_IN_FLIGHT + 16
"""Messages that wait for a peer to read: requests, and a few heartbeats."""
FAREWELL_MS = 200
"""How long a closed transport waits for messages that it has not sent."""
_HEARTBEAT_MS, _SILENT_MS = 5_000, 20_000
"""How often libzmq asks for a sign of life, and when it drops a silent connection: for cut cables, which TCP
itself notices after minutes."""
_SHARED_BYTES = 256 * 1024  # below, copying costs less than keeping a shared buffer until it is sent
_NS_PER_MS = 1_000_000
_MONITORS = count()


def new_socket(context: zmq.Context, kind: int, address: str) -> zmq.Socket:
    """Make a socket of that kind for one address, with the limits common to all."""
    socket: zmq.Socket = context.socket(kind)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.set(zmq.RCVHWM, HIGH_WATER_MARK)
    socket.set(zmq.MAXMSGSIZE, LIMITS.frame)
    socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.set(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.set(zmq.HEARTBEAT_TIMEOUT, _SILENT_MS)
    socket.set(zmq.IPV6, int("[" in address))  # else a name would resolve to its IPv6 address only
    socket.copy_threshold = _SHARED_BYTES
    return socket


def new_monitor(socket: zmq.Socket, events: int) -> zmq.Socket:
    """Make a socket that reports the connection events of another; however many, it never waits."""
    address = f"inproc://monitor-{next(_MONITORS)}"
    socket.monitor(address, events)
    monitor: zmq.Socket = socket.context.socket(zmq.PAIR)
    monitor.set(zmq.LINGER, 0)
    monitor.set(zmq.RCVHWM, 0)
    monitor.connect(address)
    return monitor


def events_of(monitor: zmq.Socket) -> Sequence[tuple[int, int]]:
    """Return what has happened since the last call: (event, its value), oldest first."""
    events: list[tuple[int, int]] = []
    while True:
        try:
            head, _ = monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return events
        events.append((int.from_bytes(head[:2], "little"), int.from_bytes(head[2:6], "little")))


def wait(
    sockets: Sequence[tuple[zmq.Socket | int, int]], timeout_ns: int | None, doorbell: Doorbell
) -> Sequence[object]:
    """Wait until a socket is ready, the doorbell rings, or the time is over; return the ready ones."""
    timeout_ms = -1 if timeout_ns is None else max(0, -(-timeout_ns // _NS_PER_MS))
    bell = doorbell.fileno()
    ready = [which for which, _ in zmq.zmq_poll([*sockets, (bell, zmq.POLLIN)], timeout_ms)]
    if bell in ready:
        doorbell.clear()
        ready.remove(bell)
    return ready
