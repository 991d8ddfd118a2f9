"""Processes that share the episodes of an evaluation or of a collection."""

import contextlib
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.pool import Pool

from robot_runtime.processes import interrupts_kept_from_children


@contextlib.contextmanager
def worker_pool(num_workers: int) -> Iterator[Pool]:
    """Fresh interpreters that leave Ctrl-C to their parent, and end with the block whatever happens in it."""
    with interrupts_kept_from_children() as now_for_us, get_context("spawn").Pool(num_workers) as pool:
        now_for_us()
        yield pool
