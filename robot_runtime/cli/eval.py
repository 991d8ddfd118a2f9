"""`robot-runtime eval`: many episodes under the virtual clock."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from robot_runtime.cli.options import (
    SHIPPED,
    Count,
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
from robot_runtime.core.method.choose import (
    DEFAULT,
    Auto,
    Default,
    choose_method,
    default_for,
    method_or_choice,
)
from robot_runtime.core.method.latency import LATENCY_QUANTILE
from robot_runtime.core.method.table import Method
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.results import keep, keep_text

if TYPE_CHECKING:
    from robot_runtime.evaluation.result import EpisodeResult
    from robot_runtime.evaluation.traces import LatencyTrace
    from sim.episodes.evaluation import EvaluationConfig

_POLICY = (
    f"Name of a shipped policy, folder of a trained one, or expert, the task's scripted one. {SHIPPED} "
    "If not given, the one shipped for the task, or its expert where there is none."
)


@dataclass(frozen=True, kw_only=True)
class Eval:
    """Measure how often a policy succeeds with a method under a delay, over many seeded episodes.

    For whoever chooses between policies, methods or machines. Runs in simulation under a virtual clock:
    without a server, faster than real time, and the same seeds give the same results.
    """

    task: Task = "track"
    policy: Annotated[str | None, arg(help=_POLICY, help_behavior_hint="(optional)")] = None
    method: MethodName = DEFAULT
    execution_horizon: Maybe[Rows] = None
    """Rows of a chunk to run before the policy is asked again; as the method has it if not given."""
    delay_ms: Milliseconds = 0.0
    """Time from the capture of an observation to the arrival of its answer [ms of robot time]."""
    episodes: Count = 100
    """Number of episodes."""
    first_seed: Seed = 10_000
    """Seed of the first episode, the next ones count on; training uses seeds below 10,000."""
    trace: Maybe[str] = None
    """A delay that varies, instead of a constant one: lognormal, spikes, loss, cold-start, or a trace
    file."""
    sampling_share: Maybe[Share] = None
    """Share of the delay that the policy takes to sample a chunk, 0 to 1; streamed rows wait for less of it.
    A half if not given."""
    control_hz: Annotated[float, Within(1, 500)] = 500.0
    """Ticks of the control loop per second of robot time; 100 is five times as fast to compute."""
    workers: Processes = 2
    """Processes that share the work; the results do not depend on their number."""
    json: Maybe[OutputFile] = None
    """Write configuration, summary and every episode to this file, as JSON."""
    plot: Maybe[PictureFile] = None
    """Write a picture of the results to this file; its ending says the format: .png, .svg, .pdf."""

    def main(self) -> int:
        from robot_runtime.evaluation.delay import SAMPLING_SHARE
        from robot_runtime.evaluation.statistics import summarise, to_json, what_was_otherwise
        from robot_runtime.evaluation.traces import constant, find_trace
        from sim.episodes.evaluation import EvaluationConfig, try_out
        from sim.tasks import make_task

        make_task(self.task)
        if self.plot is not None:
            need("matplotlib")
        share = SAMPLING_SHARE if self.sampling_share is None else self.sampling_share
        trace = constant(self.delay_ms) if self.trace is None else find_trace(self.trace)
        config = EvaluationConfig(
            policy=self._policy_name(),
            task=self.task,
            method=self._method(trace),
            trace=trace,
            episodes=self.episodes,
            first_seed=self.first_seed,
            control_period_ns=round(NS_PER_S / self.control_hz),
            sampling_share=share,
        )
        try_out(config)
        start_s = time.monotonic()
        results = self._with_progress(config)
        robot_s, wall_s = sum(r.summary["duration_s"] for r in results), time.monotonic() - start_s
        print(f"{robot_s:.0f} s of robot time in {wall_s:.0f} s, start of {self.workers} workers included")
        self._report(summarise(results))
        for sentence in what_was_otherwise(results, control_period_ns=config.control_period_ns):
            print(sentence)
        if self.json is not None:
            keep_text(self.json, to_json(config.as_dict(), results))
            print(f"results: {self.json}")
        if self.plot is not None:
            from robot_runtime.evaluation.plots import plot_evaluation

            keep(self.plot, lambda path: plot_evaluation(results, title=self._title(), path=path))
            print(f"picture: {self.plot}")
        return 0

    def _policy_name(self) -> str:
        from policies.shipped import shipped_checkpoints
        from sim.experts.policy import EXPERT_POLICY

        return self.policy or (self.task if self.task in shipped_checkpoints() else EXPERT_POLICY)

    def _method(self, trace: "LatencyTrace") -> Method:
        """The method that was named, or the one for this policy and the trace's 0.9 quantile."""
        method = method_or_choice(self.method, execution_horizon=self.execution_horizon)
        if isinstance(method, Method):
            return method
        from sim.episodes.evaluation import policy_for

        policy = policy_for(self.task, self._policy_name())
        capabilities = policy.info.capabilities
        match method:
            case Default():
                choice = default_for(method, capabilities)
            case Auto():
                choice = choose_method(
                    capabilities,
                    latency_ns=trace.quantile_ns(LATENCY_QUANTILE),
                    dt_ns=policy.info.action_spec.dt_ns,
                    horizon=policy.info.action_spec.horizon,
                    execution_horizon=method.execution_horizon,
                )
        print(choice)
        return choice.method

    def _title(self) -> str:
        late = f"{self.delay_ms:g} ms" if self.trace is None else f"trace {Path(self.trace).stem}"
        return f"{self.task}, {self.method}, {late}, {self.episodes} episodes"

    def _with_progress(self, config: "EvaluationConfig") -> "list[EpisodeResult]":
        from robot_runtime.cli.progress import counted
        from sim.episodes.evaluation import evaluate

        with counted() as progress:
            bar = progress.add_task(self._title(), total=self.episodes)
            successes = 0

            def on_episode(result: "EpisodeResult") -> None:
                nonlocal successes
                successes += result.score.success
                progress.update(bar, advance=1, description=f"{self._title()}: {successes} succeeded")

            return evaluate(config, on_episode, workers=self.workers)

    def _report(self, summary: dict) -> None:
        from rich.console import Console
        from rich.table import Table

        low, high = summary.pop("success_interval_95")
        table = Table("figure", "value", title=self._title())
        table.add_row("success", f"{summary.pop('success'):.1%}  (95 % interval {low:.1%} to {high:.1%})")
        for name, value in summary.items():
            table.add_row(name, "-" if value is None else f"{value:.4g}")
        Console().print(table)
