"""`robot-runtime eval`: runs many episodes under the virtual clock."""

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from robot_runtime.cli.options import (
    SHIPPED,
    AnyFolder,
    Count,
    InputFile,
    Maybe,
    MethodName,
    Milliseconds,
    OutputFile,
    PictureFile,
    Processes,
    Rows,
    Seed,
    Share,
    Task,
    Within,
    need,
)
from robot_runtime.core.method.capabilities import training_recipe
from robot_runtime.core.method.choose import (
    DEFAULT,
    method_or_choice,
)
from robot_runtime.core.method.table import Method
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.config import LogConfig
from robot_runtime.results import keep, keep_text

if TYPE_CHECKING:
    from robot_runtime.evaluation.evaluate import Evaluation
    from robot_runtime.evaluation.result import EpisodeResult
    from robot_runtime.evaluation.traces import LatencyTrace

_POLICY = (
    f"Name of a shipped policy, folder of a trained one, or expert for the task's scripted expert. {SHIPPED} "
    "With --env also your own, as path/to/file.py:object, or a server's HOST:PORT, asked in lock-step. "
    "If not given, the policy shipped for the task and the method, or the task's expert if there is none."
)


@dataclass(frozen=True, kw_only=True)
class Eval:
    """Measure a policy's success rate with a method under a delay, over seeded episodes.

    Helps to choose between policies, methods or machines. Runs in simulation under a virtual clock: without a
    server, faster than real time, and with the same results for the same seeds.
    """

    task: Task = "track"
    env: Maybe[str] = None
    """Your own simulator in place of a task: path/to/file.py:object, package.module:object, the name of an
    entry point, gymnasium:ID such as gymnasium:gym_pusht/PushT-v0, or lerobot:TYPE. Its step is the control
    period."""
    env_file: Maybe[InputFile] = None
    """JSON or TOML file with what a Gymnasium environment does not declare: success, state, action_names,
    control_hz, max_steps, kwargs and more."""
    policy: Annotated[str | None, arg(help=_POLICY, help_behavior_hint="(optional)")] = None
    method: MethodName = DEFAULT
    execution_horizon: Maybe[Rows] = None
    """Rows of a chunk to run before the next request; the method's own number if not given."""
    delay_ms: Milliseconds = 0.0
    """Time from the capture of an observation to the arrival of its answer [ms of robot time]."""
    episodes: Count = 100
    """Number of episodes."""
    first_seed: Seed = 10_000
    """Seed of the first episode; the next episodes count up from it. Training uses seeds below 10,000."""
    trace: Maybe[str] = None
    """Varying delay in place of a constant one: lognormal, spikes, loss, cold-start, or a trace file."""
    sampling_share: Maybe[Share] = None
    """Share of the delay that the policy spends on sampling a chunk, 0 to 1; streamed rows wait for less of
    it. 0.5 if not given."""
    control_hz: Annotated[float, Within(1, 500)] = 500.0
    """Ticks of the control loop per second of robot time; 100 is five times faster to compute than 500."""
    workers: Processes = 2
    """Processes that share the work; the results do not depend on their number."""
    json: Maybe[OutputFile] = None
    """Write configuration, summary and every episode to this file, as JSON."""
    log: Maybe[AnyFolder] = None
    """Folder for the episodes' logs, one file each: see `robot-runtime log`."""
    plot: Maybe[PictureFile] = None
    """Write a plot of the results to this file; its ending sets the format: .png, .svg, .pdf."""

    def main(self) -> int:
        from robot_runtime.evaluation.delay import SAMPLING_SHARE
        from robot_runtime.evaluation.statistics import summarise, what_was_otherwise
        from robot_runtime.evaluation.traces import constant, find_trace

        if self.plot is not None:
            need("matplotlib")
        share = SAMPLING_SHARE if self.sampling_share is None else self.sampling_share
        trace = constant(self.delay_ms) if self.trace is None else find_trace(self.trace)
        start_s = time.monotonic()
        done = self._of_task(trace, share) if self.env is None else self._of_env(self.env, trace, share)
        results, period_ns = done.episodes, done.control_period_ns
        robot_s, wall_s = sum(r.summary["duration_s"] for r in results), time.monotonic() - start_s
        print(f"{robot_s:.0f} s of robot time in {wall_s:.0f} s, start of {self.workers} workers included")
        own = {name for result in results for name in result.score.metrics}
        self._report(summarise(results), own, rule=str(done.config.get("success", "")))
        for why, num in Counter(result.score.why for result in results if result.score.why).items():
            print(f"{num} of {len(results)} episodes: {why}")
        for sentence in what_was_otherwise(results, control_period_ns=period_ns):
            print(sentence)
        if self.json is not None:
            keep_text(self.json, done.to_json())
            print(f"results: {self.json}")
        if self.plot is not None:
            picture = partial(done.plot, title=self._title())
            keep(self.plot, picture)
            print(f"picture: {self.plot}")
        return 0

    @property
    def _log(self) -> LogConfig | None:
        return None if self.log is None else LogConfig(folder=self.log)

    def _of_task(self, trace: "LatencyTrace", share: float) -> "Evaluation":
        """Run episodes of a built-in task."""
        from robot_runtime.evaluation.evaluate import Evaluation
        from sim.episodes.evaluation import EvaluationConfig, evaluate, try_out
        from sim.tasks import make_task

        make_task(self.task)
        config = EvaluationConfig(
            policy=self._policy_name(),
            task=self.task,
            method=self._method(trace),
            trace=trace,
            episodes=self.episodes,
            first_seed=self.first_seed,
            control_period_ns=round(NS_PER_S / self.control_hz),
            sampling_share=share,
            log=self._log,
        )
        try_out(config)
        results = self._with_progress(lambda hear: evaluate(config, hear, workers=self.workers))
        return Evaluation(config=config.as_dict(), episodes=results)

    def _of_env(self, name: str, trace: "LatencyTrace", share: float) -> "Evaluation":
        """Run episodes of the user's env."""
        from sim.commands.eval_env import EnvEvaluation, choose, run_env

        if self.policy is None:
            raise InvalidValueError(
                "--env needs --policy: path/to/file.py:object, a name, a folder, or the address of a server"
            )
        config = EnvEvaluation(
            env=name,
            env_file=self.env_file,
            policy=self.policy,
            trace=trace,
            sampling_share=share,
            log=self._log,
            seeds=range(self.first_seed, self.first_seed + self.episodes),
        )
        config, reason = choose(config, self.method, execution_horizon=self.execution_horizon)
        if reason:
            print(reason)
        return self._with_progress(lambda hear: run_env(config, hear, workers=self.workers))

    def _policy_name(self) -> str:
        from policies.shipped import checkpoint_for
        from sim.experts.policy import EXPERT_POLICY

        if self.policy is not None:
            return self.policy
        method = method_or_choice(self.method)
        recipe = training_recipe(method) if isinstance(method, Method) else ""
        return checkpoint_for(self.task, recipe) or EXPERT_POLICY

    def _method(self, trace: "LatencyTrace") -> Method:
        """Return the method of --method, or the one for this policy and the trace's 0.9 quantile."""
        named = method_or_choice(self.method, execution_horizon=self.execution_horizon)
        if isinstance(named, Method):
            return named
        from robot_runtime.evaluation.evaluate import chosen_method
        from sim.episodes.evaluation import policy_for

        policy = policy_for(self.task, self._policy_name())
        method, reason = chosen_method(policy, self.method, trace, self.execution_horizon)
        print(reason)
        return method

    def _title(self) -> str:
        late = f"{self.delay_ms:g} ms" if self.trace is None else f"trace {Path(self.trace).stem}"
        return f"{self.env or self.task}, {self.method}, {late}, {self.episodes} episodes"

    def _with_progress[T](self, run: "Callable[[Callable[[EpisodeResult], None]], T]") -> T:
        from robot_runtime.cli.progress import counted

        with counted() as progress:
            bar = progress.add_task(self._title(), total=self.episodes)
            successes = 0

            def on_episode(result: "EpisodeResult") -> None:
                nonlocal successes
                successes += result.score.success
                note = f": {successes} succeeded" if result.score.has_success else ""
                progress.update(bar, advance=1, description=f"{self._title()}{note}")

            return run(on_episode)

    def _report(self, summary: dict, own: Collection[str], *, rule: str) -> None:
        """Print the summary. own: the env's own figures, shown even if 0. rule: when an episode succeeds."""
        from rich.table import Table

        from robot_runtime.cli.console import plain_console

        table = Table("figure", "value", title=self._title())
        rate, interval = summary.pop("success"), summary.pop("success_interval_95")
        if rate is None:
            table.add_row("success", "unknown: no step gave is_success")
        else:
            low, high = interval
            table.add_row(f"success {rule}".strip(), f"{rate:.1%}  (95 % interval {low:.1%} to {high:.1%})")
        shown = {name: value for name, value in summary.items() if value or name in own}
        for name, value in shown.items():
            table.add_row(name, f"{value:.4g}")
        plain_console().print(table)
        if left := len(summary) - len(shown):
            print(f"{left} more figures are 0 or have no value; --json writes them too")
