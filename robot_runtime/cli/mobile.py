"""`robot-runtime mobile`: labels, policies and splices on the household tasks, under latency."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from robot_runtime.cli.comparison import Comparison
from robot_runtime.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from sim.lab import Cell
    from sim.lab_scores import Row
    from sim.lab_training import Trainable
    from sim.mobile_lab import Network


@dataclass(frozen=True, kw_only=True)
class Mobile(Comparison):
    """Compare how a moving hand is told and spliced: Mobile UMI's comparison, in simulation.

    Every finished place is kept in `<output>/cells.jsonl` and never run again, so it can be interrupted and
    taken up at any time. Leaves `mobile.json` and `mobile.png`.
    """

    tasks: tuple[str, ...] = ()
    """Which household tasks; all if none is named."""
    labels: tuple[Literal["base", "world"], ...] = ("base", "world")
    """The hand in the base and the base from where it is, or both in odometry's world."""
    networks: tuple[Literal["shipped", "seeing", "flow", "act", "diffusion"], ...] = (
        "shipped",
        "seeing",
        "flow",
        "act",
        "diffusion",
    )
    """Ours as it is shipped, the same from pictures alone; ours and LeRobot's own, all trained alike."""
    splices: tuple[str, ...] = ()
    """Methods, also state-matching-faded and state-matching-untimed; the other four if none is named."""
    delays: tuple[float, ...] = (0.0, 300.0, 600.0)
    """Capture to answer [ms]."""
    seeds: tuple[int, ...] = (0,)
    """Training seeds."""
    episodes: int = 100
    """In each place."""
    checkpoints: Path = Path("outputs/checkpoints")
    """Trained policies, as `<task>/<network>-<labels>-<seed>`; the shipped ones count as shipped-base-0
    and seeing-base-0."""
    output: Path = Path("outputs/mobile")

    @property
    def num_episodes(self) -> int:
        return self.episodes

    def _check(self) -> None:
        from sim.mobile_lab import SPLICES, VARIANTS
        from sim.tasks import HOUSEHOLD_TASKS

        for task in self.tasks:
            if task not in HOUSEHOLD_TASKS:
                raise UnknownNameError("household task", task, HOUSEHOLD_TASKS)
        for splice in self.splices:
            if splice not in (known := (*SPLICES, *VARIANTS)):
                raise UnknownNameError("splice of the comparison", splice, known)
        if min(self.delays, default=-1.0) < 0:
            raise InvalidValueError(f"need delays, and none below 0 ms, got {self.delays}")

    def _cells(self) -> "tuple[list[Cell], list[Trainable]]":
        from sim.mobile_lab import MissingMobilePolicy, can_exist, find_mobile_policy, mobile_cells
        from sim.tasks import HOUSEHOLD_TASKS
        from sim.traces import constant

        cells: list[Cell] = []
        missing: list[Trainable] = []
        traces = tuple(constant(delay_ms) for delay_ms in self.delays)
        for seed, network, labels in product(self.seeds, self.networks, self.labels):
            if not can_exist(network, labels, seed):
                continue
            for task in self.tasks or sorted(HOUSEHOLD_TASKS):
                policy = find_mobile_policy(self.checkpoints, task, network, labels, seed)
                if isinstance(policy, MissingMobilePolicy):
                    missing.append(policy)
                else:
                    cells += mobile_cells(policy, task, self._splices(network), traces, self.episodes)
        return cells, missing

    def _splices(self, network: "Network") -> tuple[str, ...]:
        from sim.mobile_lab import VARIANTS, splices_of

        has = splices_of(network)
        return tuple(s for s in (*has, *VARIANTS) if s in (self.splices or has))

    def _write(self, rows: "list[Row]", left_out: list[str]) -> None:
        from rich.console import Console
        from rich.table import Table

        from sim.lab_page import to_json, write_readme
        from sim.mobile_page import BEGIN, END, averages, draw, markdown

        (self.output / "mobile.json").write_text(to_json(rows))
        draw(rows, self.output / "mobile.png")
        head, *body = averages(rows)
        shown = Table(title="All household tasks: success (95 % intervals: README)")
        num_columns = 3 + len({row.trace for row in rows})
        for name in head[:num_columns]:
            shown.add_column(name, no_wrap=True)
        for line in body:
            shown.add_row(*(cell.partition(" (")[0] for cell in line[:num_columns]))
        Console().print(shown)
        print(f"figures: {self.output / 'mobile.json'}, picture: {self.output / 'mobile.png'}")
        if self.write_readme:
            import sim

            folder = Path(sim.__file__).parent
            write_readme(folder / "README.md", markdown(rows), begin=BEGIN, end=END)
            (folder / "results" / "mobile.json").write_text(to_json(rows))
            draw(rows, folder / "results" / "mobile.png")
