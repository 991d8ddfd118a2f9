"""Compares all methods on a third-party simulator, at several delays: scripts/results/third-party.json.

Runs where the simulator is installed, with the extra `policies`. Cells that the file has are kept, so an
interrupted comparison goes on where it was.
"""

import fcntl
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from robot_runtime.cli.options import Count, InputFile, Maybe, OutputFile, Some, Within
from robot_runtime.core.method.sampler_parts import BestOfSamples
from robot_runtime.core.method.table import Method, method_named
from robot_runtime.core.policy import Policy
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.evaluation.evaluate import Evaluation, evaluate
from robot_runtime.evaluation.statistics import wilson_interval
from robot_runtime.evaluation.steps import play_expert
from robot_runtime.load_object import load_object
from robot_runtime.results import keep_text, made_by
from scripts.harness import run_script
from sim.commands.eval_env import env_or_maker

Delay = Annotated[int, Within(0, 3_600_000)]
"""[ms]"""
DELAYS_MS = (0, 100, 300, 600)
FIRST_SEED = 10_000
EXECUTION_HORIZON = 4
"""Of all but those that have one of their own: rows from one request to the next."""
EXPERT = "delayed-expert"
METHODS: Mapping[str, Callable[[], Method]] = {
    "synchronous": partial(method_named, "synchronous"),
    "synchronous-4": partial(method_named, "synchronous", execution_horizon=EXECUTION_HORIZON),
    **{
        name: partial(method_named, name)
        for name in (
            "naive", "time-aligned", "cross-fade", "temporal-ensembling", "rtc", "committed-prefix", "faster",
            "pipelined-time-aligned", "pipelined-prefix", "pipelined-faster",
        )
    },
    "bid-4": lambda: replace(method_named("bid"), sampler=BestOfSamples(num_samples=4)),
}  # fmt: skip
"""The last but one is the default of these policies."""


@dataclass(frozen=True, kw_only=True)
class Args:
    """Compare methods on one env with one policy; add the cells to the file."""

    env: str
    policy: str
    """Folder of the checkpoint."""
    name: str
    """Name in the tables."""
    env_file: Maybe[InputFile] = None
    expert: str | None = None
    """A function of env and `late`, the steps by which what it sees is late: the limit beside the methods."""
    methods: Some[str] = tuple(METHODS)
    delays_ms: Some[Delay] = DELAYS_MS
    episodes: Count = 50
    json: OutputFile = Path("scripts/results/third-party.json")


def main(args: Args) -> int:
    import torch

    from policies.load import load_policy

    torch.set_num_threads(1)
    policy, env = load_policy(args.policy), env_or_maker(args.env, args.env_file)
    assert callable(env)
    seeds = range(FIRST_SEED, FIRST_SEED + args.episodes)
    facts = describe(args, policy, env())
    wanted = [(m, d) for d in args.delays_ms for m in (*args.methods, *((EXPERT,) if args.expert else ()))]
    for method, delay_ms in wanted:
        if str(delay_ms) in read(args.json).get(args.name, {"cells": {}})["cells"].get(method, {}):
            continue
        if method == EXPERT:
            cell = expert_cell(args, env(), delay_ms, seeds)
        else:
            cell = cell_of(
                evaluate(policy, env, method=METHODS[method](), trace=float(delay_ms), seeds=seeds)
            )
        with alone_with(args.json):
            known = read(args.json)
            entry = known.setdefault(args.name, {**facts, "made_by": made_by(seeds=seeds), "cells": {}})
            entry["cells"].setdefault(method, {})[str(delay_ms)] = cell
            keep_text(args.json, json.dumps(known, indent=1) + "\n")
        print(f"{args.name} {method} {delay_ms} ms: {cell['successes']} of {cell['episodes']}", flush=True)
    return 0


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Several processes may add to one file."""
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def describe(args: Args, policy: Policy, env: Any) -> dict[str, object]:
    """What the cells are of."""
    spec = policy.info.action_spec
    training = json.loads((Path(args.policy) / "config.json").read_text())["training"]
    kept = (
        "env",
        "episodes",
        "samples",
        "steps",
        "batch_size",
        "width",
        "seed",
        "final_loss",
        "recipe",
    )
    return {
        "env": env.info.name,
        "control_hz": env.info.control_hz,
        "episode_s": env.info.episode_ns / NS_PER_S,
        "horizon": spec.horizon,
        "row_s": spec.dt_s,
        "training": {key: training[key] for key in kept},
    }


def cell_of(done: Evaluation) -> dict[str, object]:
    """The figures of the page."""
    summary = done.summary()
    successes = sum(result.score.success for result in done.episodes)
    names = ("success_interval_95", "completion_s_median", "requests_per_s", "starved_ticks", "duration_s")
    figures = {name: summary[name] for name in names}
    if "coverage" in summary:
        figures["coverage"] = summary["coverage"]
    return {"episodes": len(done.episodes), "successes": successes, **figures}


def expert_cell(args: Args, env: Any, delay_ms: int, seeds: range) -> dict[str, object]:
    """An expert that sees what was so long ago, and acts at every step."""
    assert args.expert is not None
    expert: Any = load_object(args.expert, group="robot_runtime.experts", what="expert")
    late = math.ceil(delay_ms * env.info.control_hz / 1000.0 - 1e-9)
    episodes = [play_expert(env, partial(expert, late=late), seed=seed) for seed in seeds]
    successes = sum(episode.is_success for episode in episodes)
    times = sorted(len(e.state) / env.info.control_hz for e in episodes if e.is_success)
    return {
        "episodes": len(episodes),
        "successes": successes,
        "success_interval_95": list(wilson_interval(successes, len(episodes))),
        "completion_s_median": times[len(times) // 2] if times else None,
    }


if __name__ == "__main__":
    run_script(Args, main, description=__doc__)
