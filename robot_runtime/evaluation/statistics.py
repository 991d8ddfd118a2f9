"""Statistics over the episodes of an evaluation, with confidence intervals."""

from collections.abc import Mapping
from dataclasses import asdict, fields

import numpy as np

from robot_runtime.core.plan.clip import ClipTally
from robot_runtime.core.plan.counts import Counts
from robot_runtime.evaluation.result import EpisodeResult
from robot_runtime.results import result_json

Z_95 = 1.96
"""Half width of a 95 % interval of a normal variable, in standard deviations."""


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """95 % confidence interval of a success rate (Wilson 1927): valid at 0 and 100 %, and for small n."""
    if n == 0:
        return 0.0, 1.0
    rate, z = successes / n, Z_95
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return float(max(0.0, centre - half)), float(min(1.0, centre + half))


def difference_interval(successes_a: int, n_a: int, successes_b: int, n_b: int) -> tuple[float, float]:
    """95 % confidence interval of rate a less rate b, of independent samples (Newcombe 1998, method 10)."""
    (low_a, high_a), (low_b, high_b) = wilson_interval(successes_a, n_a), wilson_interval(successes_b, n_b)
    a, b = successes_a / n_a, successes_b / n_b
    return a - b - float(np.hypot(a - low_a, high_b - b)), a - b + float(np.hypot(high_a - a, b - low_b))


def summarise(results: list[EpisodeResult]) -> dict[str, float | list[float] | None]:
    """One method's figures over its episodes; None for unknown ones."""
    n, successes = len(results), sum(result.score.success for result in results)
    has_success = not results or any(result.score.has_success for result in results)
    times = [r.score.completion_s for r in results if r.score.completion_s is not None]
    reactions = [reaction_s for result in results for reaction_s in result.score.reactions_s]
    out: dict[str, float | list[float] | None] = {
        "episodes": n,
        "success": successes / max(n, 1) if has_success else None,
        "success_interval_95": list(wilson_interval(successes, n)) if has_success else None,
        "completion_s_median": float(np.median(times)) if times else None,
        "reaction_p50_s": float(np.quantile(reactions, 0.5)) if reactions else None,
        "reaction_p95_s": float(np.quantile(reactions, 0.95)) if reactions else None,
    }
    for source in ("summary", "score"):
        rows = [r.summary if source == "summary" else r.score.metrics for r in results]
        taken = set(out)
        for key in rows[0] if rows else ():
            name = f"env_{key}" if key in taken else key  # an env may have its own "success"
            out[name] = float(np.mean([row[key] for row in rows if key in row]))
    out["seam_jump_max"] = max((r.summary["seam_jump_max"] for r in results), default=0.0)
    return out


def what_was_otherwise(results: list[EpisodeResult], *, control_period_ns: int) -> list[str]:
    """One sentence for each kind of intervention of the limits, or deviation from the method, over all
    episodes."""
    clips, counts = ClipTally(period_ns=control_period_ns), Counts()
    for result in results:
        clips.add_figures(result.held_back)
        for each in fields(Counts):
            before, more = getattr(counts, each.name), result.summary.get(each.name, 0.0)
            is_first = each.name == "first_far_seam"
            setattr(counts, each.name, (before or more) if is_first else int(before + more))
    times = (f"{'once' if n == 1 else f'{n} times'}: {what}" for what, n in counts.fallbacks().items())
    return [*clips.sentences(), *times]


def to_json(config: Mapping[str, object], results: list[EpisodeResult], *, with_episodes: bool = True) -> str:
    """Provenance, configuration, summary, failed seeds, and every episode if wanted, as text."""
    data: dict[str, object] = {
        "config": dict(config),
        "summary": summarise(results),
        "failed_seeds": [r.seed for r in results if r.score.has_success and not r.score.success],
    }
    if with_episodes:
        data["episodes"] = [asdict(result) for result in results]
    return result_json(data, seeds=[result.seed for result in results])
