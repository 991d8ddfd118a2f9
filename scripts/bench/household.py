"""`python -m scripts.bench household`: compares labels, policies and splices on the household tasks."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from robot_runtime.cli.options import AnyFolder, Count, Milliseconds, OutputFolder, Seed, Several, Some
from robot_runtime.errors import UnknownNameError
from scripts.bench.comparison import Comparison

if TYPE_CHECKING:
    from scripts.lab.cells import Cell
    from scripts.lab.household import Network
    from scripts.lab.scores import Row
    from scripts.lab.training import Trainable
_SPLICES = (
    "How a new chunk meets the old plan: naive, time-aligned, state-matching, pipelined-prefix, "
    "state-matching-faded, state-matching-untimed; the first four if not given."
)


@dataclass(frozen=True, kw_only=True)
class BenchHousehold(Comparison):
    """Compare policies and ways to join their chunks on the household tasks of the mobile robot.

    For research: should a policy predict the end effector's motion in the robot's base or in the world, and
    how should a chunk be spliced for a base that has moved on (Mobile UMI's comparison, in simulation). Every
    finished cell is kept in `<output>/cells.jsonl`, so that the same command continues after an interruption.
    Writes `mobile.json` and `mobile.png`.
    """

    tasks: Several[str] = ()
    """Household tasks to compare on: clear, drawer, fetch, wipe; all if not given."""
    labels: Some[Literal["base", "world"]] = ("base", "world")
    """Frames of actions. base: the end effector in the base, and the base relative to its pose. world: both
    in odometry's world."""
    networks: Some[Literal["shipped", "seeing", "flow", "act", "diffusion"]] = (
        "shipped",
        "seeing",
        "flow",
        "act",
        "diffusion",
    )
    """Policies to compare. shipped: ours. seeing: ours from images alone. flow, act, diffusion: our and
    LeRobot's networks, trained alike."""
    splices: Annotated[Several[str], arg(help=_SPLICES)] = ()
    delays: Some[Milliseconds] = (0.0, 300.0, 600.0)
    """Delays from capture to answer [ms]."""
    seeds: Some[Seed] = (0,)
    """Training seeds of the policies."""
    episodes: Count = 100
    """Episodes in each cell, with the same seeds everywhere."""
    checkpoints: AnyFolder = Path("outputs/checkpoints")
    """Folder of the trained policies, as `<task>/<network>-<labels>-<seed>`; the shipped ones count as
    shipped-base-0 and seeing-base-0."""
    output: OutputFolder = Path("outputs/mobile")

    @property
    def num_episodes(self) -> int:
        return self.episodes

    def _check(self) -> None:
        from scripts.lab.household import SPLICES, VARIANTS
        from sim.tasks import HOUSEHOLD_TASKS

        for task in self.tasks:
            if task not in HOUSEHOLD_TASKS:
                raise UnknownNameError("household task", task, HOUSEHOLD_TASKS)
        for splice in self.splices:
            if splice not in (known := (*SPLICES, *VARIANTS)):
                raise UnknownNameError("splice of the comparison", splice, known)

    def _cells(self) -> "tuple[list[Cell], list[Trainable]]":
        from robot_runtime.evaluation.traces import constant
        from scripts.lab.household import MissingMobilePolicy, can_exist, find_mobile_policy, mobile_cells
        from sim.tasks import HOUSEHOLD_TASKS

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
        from scripts.lab.household import VARIANTS, splices_of

        has = splices_of(network)
        return tuple(s for s in (*has, *VARIANTS) if s in (self.splices or has))

    def _write(self, rows: "list[Row]") -> None:
        from rich.table import Table

        from robot_runtime.cli.console import plain_console
        from scripts.harness import RESULTS
        from scripts.lab.household_page import averages, draw
        from scripts.lab.page import to_json

        for folder in (self.output, *((RESULTS,) if self.write_results else ())):
            (folder / "mobile.json").write_text(to_json(rows))
            draw(rows, folder / "mobile.png")
            print(f"figures: {folder / 'mobile.json'}, picture: {folder / 'mobile.png'}")
        head, *body = averages(rows)
        shown = Table(title="All household tasks: success (95 % intervals are in the figures)")
        num_columns = 3 + len({row.trace for row in rows})
        for name in head[:num_columns]:
            shown.add_column(name, no_wrap=True)
        for line in body:
            shown.add_row(*(cell.partition(" (")[0] for cell in line[:num_columns]))
        plain_console().print(shown)
