"""The signals that end or suspend a process, handled within a block."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


class Ended(KeyboardInterrupt):
    """A signal that ends the process has come."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def handled(numbers: Sequence[int], handler: Handler) -> Iterator[tuple[int, ...]]:
    """Let `handler` get these signals; afterwards the previous handlers are restored.

    Yields the signals that it gets. Those that are ignored (as SIGHUP under `nohup`), or that have a handler
    outside Python, stay as they are. Only the main thread can handle signals: in another thread, none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield ()
        return
    before = {number: signal.getsignal(number) for number in numbers}
    taken = tuple(number for number, old in before.items() if old not in (signal.SIG_IGN, None))
    for number in taken:
        signal.signal(number, handler)
    try:
        yield taken
    finally:
        for number in taken:
            signal.signal(number, before[number])
