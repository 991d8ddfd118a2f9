"""VLASH's control loop, written down from its description alone (run.py at 22cbabf), for comparison.

    tick i      0   1   ...   n-o   ...   n-1 | 0
                |             |               |
                switch        look, launch    switch: wait for the answer if it is not there
    state shown at the launch: the last action of the running chunk, whatever was measured

Kept apart from our executor on purpose: no line of it is shared, so that the two can disagree.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Infer = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(state shown, scene as captured) to a chunk (n, D) or longer."""


@dataclass(frozen=True)
class Sent:
    """One action on its way to the robot."""

    t_ns: int
    action: np.ndarray
    chunk: int
    index: int


def vlash_loop(
    infer: Infer,
    *,
    measure: Callable[[int], tuple[np.ndarray, np.ndarray]],
    num_run: int,
    overlap: int,
    period_ns: int,
    latency_ns: Callable[[int], int],
    end_ns: int,
) -> list[Sent]:
    """Every action sent before `end_ns`.

    measure: time to (measured joints with gripper, scene).
    num_run, overlap: n and o, 1 <= o <= n.
    latency_ns: number of the inference to how long it takes.
    """
    sent: list[Sent] = []
    now_ns, i, chunk = 0, 0, 0
    current: np.ndarray | None = None
    pending: np.ndarray | None = None
    ready_ns = 0
    while now_ns < end_ns:
        if current is None:  # not running: a blocking, synchronous inference on what was measured
            current = infer(*measure(now_ns))[:num_run]
            now_ns += latency_ns(0)
        elif i == 0:  # the switch; waits for the device if the answer is late
            assert pending is not None
            current, pending = pending, None
            now_ns, chunk = max(now_ns, ready_ns), chunk + 1
        if i == num_run - overlap:
            _, scene = measure(now_ns)
            pending = infer(current[num_run - 1], scene)[:num_run]
            ready_ns = now_ns + latency_ns(chunk + 1)
        sent.append(Sent(now_ns, current[i], chunk, i))
        i = (i + 1) % num_run
        now_ns += period_ns
    return [action for action in sent if action.t_ns < end_ns]
