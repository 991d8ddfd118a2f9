"""Train the shipped checkpoints, evaluate them on unseen seeds, and write the results into their model cards.

python scripts/train_shipped_policies.py                # about two hours on two cores
python scripts/train_shipped_policies.py --no-train     # only evaluate and rewrite the cards
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from policies.flow.checkpoint import load, write_card
from robot_runtime.core.method import DEFAULT_METHOD, method_named
from sim.evaluation import EvaluationConfig, evaluate
from sim.lab import CONTROL_PERIOD_NS
from sim.statistics import summarise, to_json
from sim.traces import constant

CHECKPOINTS = Path(__file__).parent.parent / "policies" / "checkpoints"
RESULTS = Path(__file__).parent.parent / "sim" / "results"
CASES = (
    (DEFAULT_METHOD, 0.0),
    (DEFAULT_METHOD, 200.0),
    (DEFAULT_METHOD, 400.0),
    ("committed-prefix", 400.0),
    ("time-aligned", 400.0),
    ("naive", 400.0),
    ("synchronous", 0.0),
    ("synchronous", 400.0),
)
"""(method, delay [ms]) of the rows in a model card."""


@dataclass(frozen=True, kw_only=True)
class Args:
    tasks: tuple[str, ...] = ("track", "pick_place", "strike", "conveyor")
    """Which checkpoints."""
    train: bool = True
    """Train; otherwise take the checkpoints that are there."""
    episodes: int = 100
    """Unseen seeds per case."""
    workers: int = 2
    """Processes."""


def evaluate_case(task: str, method: str, delay_ms: float, args: Args) -> dict[str, str]:
    """One row of the model card; its episodes go to `sim/results`."""
    config = EvaluationConfig(
        policy=task,
        task=task,
        method=method_named(method),
        trace=constant(delay_ms),
        episodes=args.episodes,
        control_period_ns=CONTROL_PERIOD_NS,
    )
    results = evaluate(config, workers=args.workers)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{task}-{method}-{delay_ms:g}ms.json").write_text(
        to_json(config, results, with_episodes=False)
    )
    summary: dict[str, Any] = summarise(results)
    low, high = summary["success_interval_95"]
    reactions = [shown(summary[f"reaction_{q}_s"], 2) for q in ("p50", "p95")]
    row = {
        "success": f"{summary['success']:.0%} ({low:.0%} to {high:.0%})",
        "completion [s]": shown(summary["completion_s_median"], 1),
        "stalled [s]": shown(summary["stalled_s"], 2),
        "reaction p50 / p95 [s]": " / ".join(reactions),
        "largest seam jump [rad]": shown(summary["seam_jump_max"], 3),
    }
    print(task, method, delay_ms, row, flush=True)
    return row


def shown(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def main(args: Args) -> None:
    for task in args.tasks:
        folder = CHECKPOINTS / task
        if args.train:
            command = [sys.executable, "-m", "robot_runtime.cli", "train", "--task", task]
            subprocess.run([*command, "--output", str(folder)], check=True)
        rows = {
            f"{method}, {delay:g} ms, {args.episodes} seeds": evaluate_case(task, method, delay, args)
            for method, delay in CASES
        }
        write_card(load(task), folder, rows)


if __name__ == "__main__":
    main(tyro.cli(Args))
