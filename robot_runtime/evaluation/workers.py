"""Processes that share the episodes of an evaluation or of a collection."""

import contextlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from multiprocessing.pool import Pool

from robot_runtime.processes import interrupts_kept_from_children


@contextlib.contextmanager
def worker_pool(num_workers: int, *, threads: int | None = None) -> Iterator[Pool]:
    """Fresh interpreters that leave Ctrl-C to their parent, and end with the block in any case.

    threads: of torch in each worker, as the workers share the cores; None leaves the number to torch.
    """
    setup = None if threads is None else partial(_limit_threads, threads)
    with (
        interrupts_kept_from_children() as now_for_us,
        get_context("spawn").Pool(num_workers, setup) as pool,
    ):
        now_for_us()
        yield pool


def _limit_threads(number: int) -> None:
    """Set the number for the whole process, which runs nothing but its jobs."""
    os.environ["OMP_NUM_THREADS"] = str(number)  # torch reads it when it is imported
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(number)
