"""The horizon-aware schedule of FASTER (arXiv 2603.19199): when each row of a streamed answer is finished.

Global flow time s runs from 0 to 1 in N steps, and every row has its own finish time f:

    s = 0      1/N                                 1
    row d      |=|                                      f = 1 - u0: finished after the first step
    middle     |============|                           f = 1 - u0 + u0 q^alpha
    row H-1    |=================================|      f = 1: the ordinary N steps

    q = (i - d) / (H - 1 - d)      t_i(s) = min(s / f_i, 1)      committed rows, i < d: t_i = 1 throughout

The paper counts time down (tau = 1 is noise): its hit time u is 1 - f, and its equation 6,
tau = clip((rho - u) / (1 - u), 0, 1) at rho = 1 - s, is 1 - t.
"""

import numpy as np

from robot_runtime.core.method.sampler_parts import HorizonAwareSchedule, SamplerPart
from robot_runtime.core.values.shapes import Float, Int

_ROUNDING = 1e-9  # a finish time that equals a step's up to rounding belongs to that step


def finish_times(
    part: HorizonAwareSchedule, *, horizon: int, inference_delay: int = 0
) -> Float[np.ndarray, " H"]:
    """Global flow time at which each row is finished, 0 for committed rows."""
    u0 = (part.num_steps - 1) / part.num_steps if part.u0 is None else part.u0
    q = (np.arange(horizon) - inference_delay) / max(horizon - 1 - inference_delay, 1)
    times = 1.0 - u0 + u0 * np.maximum(q, 0.0) ** part.alpha
    times[:inference_delay] = 0.0
    return times


def finish_steps(
    part: HorizonAwareSchedule, *, horizon: int, inference_delay: int = 0
) -> Int[np.ndarray, " H"]:
    """Network calls after which each row is final, 0 for committed rows; nondecreasing along the chunk."""
    times = finish_times(part, horizon=horizon, inference_delay=inference_delay)
    return np.ceil(part.num_steps * times - _ROUNDING).astype(int)


def flow_times(
    part: HorizonAwareSchedule, *, horizon: int, inference_delay: int = 0
) -> Float[np.ndarray, "N_plus_1 H"]:
    """Each row's own flow time before the first step and after each."""
    times = finish_times(part, horizon=horizon, inference_delay=inference_delay)
    steps = np.arange(part.num_steps + 1)[:, None]  # (N + 1, 1)
    is_finished = steps >= finish_steps(part, horizon=horizon, inference_delay=inference_delay)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(is_finished, 1.0, np.minimum(steps / part.num_steps / times, 1.0))


def answer_rows(part: SamplerPart, *, horizon: int, inference_delay: int = 0) -> int:
    """Number of rows of an answer: the horizon, or fewer if the sampler stops early.

    An early stop ends with the step that has finished the requested open rows; if that step has finished
    more, those are sent too.
    """
    if not isinstance(part, HorizonAwareSchedule) or part.early_stop_rows is None:
        return horizon
    steps = finish_steps(part, horizon=horizon, inference_delay=inference_delay)
    last_requested = min(inference_delay + part.early_stop_rows, horizon) - 1
    return int((steps <= steps[last_requested]).sum())
