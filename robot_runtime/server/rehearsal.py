"""`ServerRehearsal`: the server's side of a round trip before a request comes; see `wire/rehearsal.py`."""

from collections.abc import Callable
from itertools import count

from policies.scripted import InstantPolicy
from robot_runtime.clock import Clock
from robot_runtime.core.action import NS_PER_MS, NS_PER_S
from robot_runtime.server.account import Account
from robot_runtime.server.delay import Delay
from robot_runtime.server.service import Service
from robot_runtime.wire import rehearsal
from robot_runtime.wire.codec import encode, read_header
from robot_runtime.wire.messages import Packet

_PEER = rehearsal.NOBODY.encode()
_WARM_NS = 5 * NS_PER_MS
"""There is no other rehearsal so soon after one: with many robots a request is always near."""


class ServerRehearsal:
    """A service with a worker of its own that answers nobody; owned and called by the network thread."""

    def __init__(self, *, clock: Clock, ring: Callable[[], None]) -> None:
        """ring: called from the worker whenever `turn` has something to do."""
        self.account = Account()
        """Of nobody's requests; the server's own say nothing of them."""
        policy = InstantPolicy(rehearsal.SCHEMA, rehearsal.SPEC)
        self._service = Service(
            policy,
            policies=[policy.name],
            account=self.account,
            clock=clock,
            ring=ring,
            heartbeat_ns=NS_PER_S,
            max_batch=1,
            delay=Delay(),
        )
        self._service.receive(_PEER, read_header(encode(rehearsal.HELLO)), clock.now_ns())
        self._request_ids = count()
        self._num_left = 0
        self._warm_until_ns = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is being gone through."""
        return not self._num_left

    def begin(self, now_ns: int) -> None:
        """Go through a request NUM_TIMES, unless that has just been done."""
        if not self.is_over or now_ns < self._warm_until_ns:
            return
        self._warm_until_ns = now_ns + _WARM_NS
        self._num_left = rehearsal.NUM_TIMES
        self._ask(now_ns)

    def turn(self, now_ns: int) -> None:
        """Take the worker's answer, and ask again if it is not yet enough."""
        if self.is_over:
            return
        self._service.take_results()
        for _, packet in self._service.packets_to_send():
            encode(packet)
        if self._service.is_idle:
            self._num_left -= 1
            if self._num_left:
                self._ask(now_ns)

    def close(self) -> None:
        """End the worker."""
        self._service.close()

    def _ask(self, now_ns: int) -> None:
        packet = Packet(rehearsal.NOBODY, 0, rehearsal.nobodys_request(next(self._request_ids)))
        self._service.receive(_PEER, read_header(encode(packet)), now_ns)
        self._service.turn(now_ns)
