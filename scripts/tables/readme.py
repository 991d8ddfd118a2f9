"""What README.md shows of the figures: one table, one sentence."""

from collections.abc import Callable, Mapping

from scripts.tables import household, methods
from scripts.tables.shared import NOTHING, result, table

COLUMNS = {
    "delayed expert": "delayed-expert",
    "default": "pipelined-faster",
    "`time-aligned`": "time-aligned",
    "row 0 on arrival": "naive",
    "`synchronous`": "synchronous",
}
"""Head: method of the table tasks."""
HOUSEHOLD = {"default": household.DEFAULT} | {
    head: f"shipped base {COLUMNS[head]}" for head in ("`time-aligned`", "row 0 on arrival")
}


def success() -> str:
    """A line for each table task, and one for all household tasks."""
    lines = [
        [
            f"`{task}`, 400 ms",
            *(methods.success_of(task, method, "400ms") for method in COLUMNS.values()),
        ]
        for task in methods.TASKS
    ]
    house = [
        household.success_of(HOUSEHOLD[head], "300ms") if head in HOUSEHOLD else NOTHING for head in COLUMNS
    ]
    return table(["task", *COLUMNS], [*lines, ["mobile robot, four tasks, 300 ms", *house]])


def speed() -> str:
    """Round trips beside openpi's in the same run, and a chunk on a GPU."""
    trips = {
        (row["path"], row["payload"][0]): row["p50"]
        for row in result("bench-peers")["rows"]
        if row["pace"] == "30 Hz"
    }
    chunk = next(
        row["p50_ms"]
        for row in result("bench-gpu")["rows"]
        if (row["model"], row["robots"], row["stage"]) == ("pi05", 1, "whole chunk")
    )
    (ours_a, openpi_a), (ours_b, openpi_b) = ([trips[who, at] for who in ("ours", "openpi")] for at in "AB")
    return (
        f"A round trip with two pictures of 480 × 640 at 30 Hz takes {ours_b:.1f} ms, openpi's client "
        f"{openpi_b:.1f} ms in the\nsame run (with two of 224 × 224: {ours_a:.1f} and {openpi_a:.1f} ms). "
        f"A chunk of pi0.5 takes {chunk:.0f} ms on an H100."
    )


TABLES: Mapping[str, Callable[[], str]] = {"readme": success, "readme-speed": speed}
