"""Processes that share the episodes of an evaluation or of a collection."""

import contextlib
import signal
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.pool import Pool


@contextlib.contextmanager
def worker_pool(num_workers: int) -> Iterator[Pool]:
    """Fresh interpreters that leave Ctrl-C to their parent, and end with the block whatever happens in it."""
    # Inherited: a worker would otherwise answer Ctrl-C with a traceback of its own.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pool = get_context("spawn").Pool(num_workers)
    finally:
        signal.signal(signal.SIGINT, handler)
    with pool:
        yield pool
