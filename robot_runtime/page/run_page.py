"""The page of a run, seen from the run: `RunPage` starts its process, feeds it, and reports when it ends.

    this process                                       the page's, which may die: the run reports it, goes on
    log ─► publish.Publisher ───── ipc ─► LiveSource ─► browsers
    control thread ◄─ OrderDoor ◄─ ipc ◄─ buttons

The sockets lie in a folder that only this user can enter; orders also carry a token.
"""

import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import zmq

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.orders import Order, TakenOrder
from robot_runtime.core.values.columns import pose_columns, state_columns
from robot_runtime.log.writer import RunLogWriter
from robot_runtime.page.child import PageConfig
from robot_runtime.page.order_door import OrderDoor
from robot_runtime.page.process import DEFAULT_HOST, DEFAULT_PORT, PageProcess

WAITS_S = 20.0
"""How long a run waits for its page before it starts [s]."""


class RunPage(AbstractContextManager["RunPage"]):
    """A context manager around the run: once entered, the page is up, or a message reports that it is not."""

    def __init__(
        self,
        command: Sequence[str],
        log: RunLogWriter,
        post: Callable[[Order, str], None],
        *,
        address: tuple[str, int] | None = None,
        say: Callable[[str], None],
    ) -> None:
        """
        command: starts the page's process, which reads a `PageConfig` from its standard input.
        log: whose messages are shown. post: receives orders, as `Session.post`.
        address: host and port; None: loopback, at 8080 or a free port.
        say: receives the page's address, or why there is none.
        """
        self._command, self._log, self._post, self._say = command, log, post, say
        self._host, self._port = (DEFAULT_HOST, DEFAULT_PORT) if address is None else address
        self._is_exact = address is not None
        self._opened = ExitStack()
        self._has_ended = self._is_closing = False

    def __enter__(self) -> "RunPage":
        with ExitStack() as opened:
            folder = Path(tempfile.mkdtemp(prefix="robot-runtime-page-"))  # of this user alone
            opened.callback(shutil.rmtree, folder, ignore_errors=True)
            context = zmq.Context()
            opened.callback(context.destroy, linger=0)
            stream, orders = f"ipc://{folder / 'stream'}", f"ipc://{folder / 'orders'}"
            token = secrets.token_urlsafe(24)
            self._log.subscribe(stream)
            config = self._page_config(stream, orders, token)
            self.process = opened.enter_context(PageProcess(self._command, config, say=self._say))
            self._await_page()
            opened.enter_context(
                OrderDoor(context, orders, token, self._post, refused=self._refuse, look=self._watch)
            )
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_closing = True
        self._opened.close()

    @property
    def url(self) -> str:
        """Address of the page; empty until it is up."""
        return self.process.url

    def _await_page(self) -> None:
        """Wait: nothing moves before an operator can watch and stop, or knows that the page is missing."""
        if self.process.is_up(WAITS_S):
            return
        if self.process.why_ended(within_s=1.0) is None:
            self._say(f"the page is not up after {WAITS_S:g} s: the run begins without it")
        else:
            self._watch()

    def _page_config(self, stream: str, orders: str, token: str) -> PageConfig:
        return PageConfig(
            stream=stream,
            orders=orders,
            token=token,
            host=self._host,
            port=self._port,
            is_exact=self._is_exact,
            columns=(*state_columns(self._log.info.schema), *pose_columns(self._log.info.schema)),
            model=self._log.info.model,
        )

    def _refuse(self, order: Order, by: str, why: str) -> None:
        """Record in the log, and so on the page, an order that did not enter the run's queue."""
        now_ns = MonotonicClock().now_ns()  # a run with a page is one in real time
        self._log.note(TakenOrder(order=order, by=by, posted_ns=now_ns, done_ns=now_ns, refused=why))

    def _watch(self) -> None:
        """Report, once, that the page's process has ended."""
        if self._has_ended or self._is_closing or (why := self.process.why_ended()) is None:
            return
        self._has_ended = True
        self._say(f"the page has ended, the run goes on without it: {why}")
