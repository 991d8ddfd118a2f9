"""`python -m scripts.bench methods`: every method on every task under every delay, on equal terms."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from robot_runtime.cli.options import AnyFolder, Count, Maybe, Milliseconds, OutputFolder, Seed, Several, Some
from robot_runtime.core.method.table import METHODS
from robot_runtime.errors import UnknownNameError
from scripts.bench.comparison import Comparison

if TYPE_CHECKING:
    from robot_runtime.evaluation.traces import LatencyTrace
    from scripts.lab.cells import Cell
    from scripts.lab.policies import MissingPolicy, TrainedPolicy
    from scripts.lab.scores import Row
    from scripts.lab.training import Trainable

FULL_DELAYS_MS, FULL_SEEDS, FULL_EPISODES = (0.0, 100.0, 200.0, 300.0, 400.0, 500.0), (0, 1, 2), 100
FULL_TRACES = ("lognormal", "spikes", "loss", "cold-start")
QUICK_DELAYS_MS, QUICK_SEEDS, QUICK_EPISODES, QUICK_TRACES = (0.0, 200.0, 400.0), (0,), 6, ("spikes",)
_METHODS = (
    "Methods to compare; all if not given. Beside those of `run` there are delayed-expert, the best that is "
    f"possible, and LeRobot's own engine, lerobot-... : {', '.join(METHODS)}."
)


@dataclass(frozen=True, kw_only=True)
class BenchMethods(Comparison):
    """Compare all methods on the table tasks, on equal terms, under constant and varying delays.

    For research: which method of running action chunks copes with which delay, and how does a new one
    compare. To try one method on one task, use `eval`. Takes hours without --quick; every finished cell is
    kept in `<output>/cells.jsonl`, so that the same command continues after an interruption. Writes
    `lab.json` and `lab.png`.
    """

    quick: bool = False
    """A small comparison of some minutes: three delays and the spikes, one training seed, 6 episodes each."""
    tasks: Several[str] = ()
    """Table tasks to compare on: track, pick_place, strike, conveyor; all if not given."""
    methods: Annotated[Several[str], arg(help=_METHODS)] = ()
    delays: Maybe[tuple[Milliseconds, ...]] = None
    """Constant delays from capture to answer [ms]; 0 100 200 300 400 500 if not given. A row takes 50 ms."""
    traces: Maybe[tuple[str, ...]] = None
    """Delays that vary: lognormal, spikes, loss, cold-start, or trace files; all four if not given."""
    seeds: Maybe[Some[Seed]] = None
    """Training seeds of the policies; 0, 1 and 2 if not given."""
    episodes: Maybe[Count] = None
    """Episodes in each cell, with the same seeds everywhere; 100 if not given."""
    checkpoints: AnyFolder = Path("outputs/checkpoints")
    """Folder of the trained policies, as `<task>/<recipe>-<seed>`; the shipped ones count as
    mixed-schedule-0. Without --train, one that was trained for both stands in for a missing plain or prefix
    one."""
    output: OutputFolder = Path("outputs/lab")

    def _check(self) -> None:
        from scripts.lab.methods import contestant_named
        from sim.tasks import TABLE_TASKS

        for task in self.tasks:
            if task not in TABLE_TASKS:
                raise UnknownNameError("task of the comparison", task, TABLE_TASKS)
        for name in self.methods:
            contestant_named(name)

    @property
    def _delays(self) -> tuple[float, ...]:
        return (QUICK_DELAYS_MS if self.quick else FULL_DELAYS_MS) if self.delays is None else self.delays

    @property
    def _seeds(self) -> tuple[int, ...]:
        return (QUICK_SEEDS if self.quick else FULL_SEEDS) if self.seeds is None else self.seeds

    @property
    def num_episodes(self) -> int:
        return (QUICK_EPISODES if self.quick else FULL_EPISODES) if self.episodes is None else self.episodes

    def _traces(self) -> "list[LatencyTrace]":
        from robot_runtime.evaluation.traces import constant, find_trace

        named = (QUICK_TRACES if self.quick else FULL_TRACES) if self.traces is None else self.traces
        return [*(constant(delay_ms) for delay_ms in self._delays), *(find_trace(name) for name in named)]

    def _cells(self) -> "tuple[list[Cell], list[Trainable]]":
        """What to run, the first training seed first; and the policies that are missing for more."""
        from scripts.lab.methods import contestant_names
        from scripts.lab.policies import MissingPolicy
        from sim.tasks import TABLE_TASKS

        cells: list[Cell] = []
        missing: dict[str, Trainable] = {}
        for seed in self._seeds:
            for task in self.tasks or sorted(TABLE_TASKS):
                for name in self.methods or contestant_names():
                    policy = self._policy(name, task, seed)
                    if isinstance(policy, MissingPolicy):
                        missing |= {str(each): each for each in policy.to_train}
                    elif policy is not None:
                        cells += self._line(name, policy, task)
        return cells, list(missing.values())

    def _policy(self, name: str, task: str, seed: int) -> "TrainedPolicy | MissingPolicy | None":
        """What a row runs with; None if it needs no policy and the first training seed has it already."""
        from scripts.lab.methods import contestant_named
        from scripts.lab.policies import expert, find_policy, recipe_needed

        recipe = recipe_needed(contestant_named(name))
        if recipe is None:
            return expert(task) if seed == self._seeds[0] else None
        return find_policy(self.checkpoints, task, recipe, seed, stand_in=not self.train)

    def _line(self, name: str, policy: "TrainedPolicy", task: str) -> "list[Cell]":
        from scripts.lab.cells import CONTROL_PERIOD_NS, Cell
        from scripts.lab.methods import contestant_named
        from sim.episodes.evaluation import EvaluationConfig

        return [
            Cell(
                method_name=name,
                policy=policy,
                config=EvaluationConfig(
                    policy=policy.name_or_path,
                    task=task,
                    method=contestant_named(name),
                    trace=trace,
                    episodes=self.num_episodes,
                    control_period_ns=CONTROL_PERIOD_NS,
                ),
            )
            for trace in self._traces()
        ]

    def _save_traces(self) -> None:
        folder = self.output / "traces"
        folder.mkdir(exist_ok=True)
        for trace in self._traces():
            trace.save(folder / f"{trace.name}.json")

    def _write(self, rows: "list[Row]") -> None:
        from scripts.harness import RESULTS
        from scripts.lab.page import to_json
        from scripts.lab.plots import draw_success

        self._save_traces()
        for folder in (self.output, *((RESULTS,) if self.write_results else ())):
            (folder / "lab.json").write_text(to_json(rows))
            draw_success(rows, folder / "lab.png")
            print(f"figures: {folder / 'lab.json'}, picture: {folder / 'lab.png'}")
        self._print(rows)

    def _print(self, rows: "list[Row]") -> None:
        from rich.table import Table

        from robot_runtime.cli.console import plain_console
        from scripts.lab.page import success_table

        for task in dict.fromkeys(row.task for row in rows):
            head, *body = success_table(rows, task)
            shown = Table(title=f"{task}: success; 95 % intervals and the policies are in the figures")
            for name in (head[0], *head[2:]):
                shown.add_column(name, no_wrap=name == head[0], overflow="fold")
            for line in body:
                shown.add_row(line[0], *(cell.partition(" (")[0] for cell in line[2:]))
            plain_console().print(shown)
