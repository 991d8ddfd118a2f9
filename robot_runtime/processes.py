"""Child processes and Ctrl-C, which a terminal sends to all of them at once."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Within the block, torch computes each operation of this process with this many threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def interrupts_kept_from_children() -> Iterator[Callable[[], None]]:
    """Make children that are started in the block leave Ctrl-C to this process, without a traceback each.

    It reaches this process when the block ends, or when the yielded function is called: once there is code
    that ends the children. Only for the main thread.
    """
    resource_tracker.ensure_running()  # starting it unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield unblock
    finally:
        unblock()
