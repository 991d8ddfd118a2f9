"""`robot-runtime train --dataset` on steps that `record --env` recorded."""

import time
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.cli.progress import counted, report_steps
from robot_runtime.errors import InvalidValueError
from robot_runtime.evaluation.steps import FILE, RecordedSteps
from robot_runtime.processes import torch_threads

if TYPE_CHECKING:
    from policies.commands.train import Train

HORIZON = 16
"""Default number of rows of a chunk."""


def are_steps(folders: tuple[Path, ...]) -> bool:
    """Return whether these are recordings of an env's steps; InvalidValueError: only some are."""
    found = [(folder / FILE).is_file() for folder in folders]
    if any(found) and not all(found):
        raise InvalidValueError("recordings of an env and datasets with a robot's parts cannot be mixed")
    return bool(found) and all(found)


def load_steps(folders: tuple[Path, ...]) -> RecordedSteps:
    """Return all episodes; InvalidValueError: they are of different envs."""
    recordings = [RecordedSteps.load(folder) for folder in folders]
    first = recordings[0]
    for folder, each in zip(folders, recordings, strict=True):
        if (each.schema.to_dict(), each.state_names, each.control_period_ns, each.task) != (
            first.schema.to_dict(), first.state_names, first.control_period_ns, first.task,
        ):  # fmt: skip
            raise InvalidValueError(f"{folder} is of another env than {folders[0]}")
    return reduce(add, recordings)


def main(options: "Train") -> int:
    """Train a policy of an env's numbers; return the exit code."""
    from policies.flow.checkpoint import load
    from policies.flow.recipes import make_recipe, refuse_beyond_chunk
    from policies.flow.steps import demonstrations_of, spec_of
    from policies.flow.train import TrainConfig, fine_tuning, train

    if options.task or options.network != "flow" or options.recipe in ("offset", "residual", "masked"):
        raise InvalidValueError(
            "what is recorded of an env goes with --network flow, without --task, and with the recipes "
            "plain, prefix, lambda-mask and mixed-schedule"
        )
    name, steps = options.recipe or "mixed-schedule", load_steps(options.dataset)
    recipe = make_recipe(name, **({} if options.max_delay is None else {"max_delay": options.max_delay}))
    init = None if options.init is None else load(options.init)
    spec = spec_of(steps, horizon=options.horizon or HORIZON) if init is None else init.info.action_spec
    if options.max_delay is not None:
        refuse_beyond_chunk(recipe, spec.horizon)
    demonstrations = demonstrations_of(steps, spec)
    start = (
        TrainConfig(recipe=recipe, seed=options.seed)
        if init is None
        else fine_tuning(recipe, seed=options.seed)
    )
    if options.device != "cpu":
        start = replace(start, bfloat16=True)
    config = replace(start, **options.given("steps", "batch_size", "learning_rate", "width"))
    config = replace(config, warmup_steps=min(config.warmup_steps, config.steps // 10))
    start_s, cpu_start_s = time.perf_counter(), time.process_time()
    with torch_threads(options.threads), counted(with_notes=True) as progress:
        bar = progress.add_task(f"train {name}", note="", total=config.steps)
        train(
            demonstrations,
            config,
            schema=steps.schema,
            action_spec=spec,
            folder=options.output,
            init=init,
            execution_horizon=options.execution_horizon,
            notes={"env": steps.name, "episodes": steps.num_episodes, **options.datasets()},
            on_step=report_steps(progress, bar),
            device=options.device,
        )
    times = {"train_s": time.perf_counter() - start_s, "train_cpu_s": time.process_time() - cpu_start_s}
    options.report(f"recipe {name}", num_steps=config.steps, num_samples=len(demonstrations), times=times)
    return 0
