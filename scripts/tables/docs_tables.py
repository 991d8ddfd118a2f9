"""Write the tables of README.md and docs/ from the files that hold the figures.

    <!-- table: loop -->
    ...                         this part is written from scripts/results
    <!-- end of table -->

    90<!-- lab: strike pipelined-faster 400ms --> % succeed         a number of a sentence

    <!-- file: examples/own_policy.py from ROWS -->
    ...                         this part is that file, for README.md, which no builder makes
    <!-- end of file -->

`--check` writes nothing, and fails if a page does not match its figures, or if a result file does not state
the command, commit, date, machine and seeds that made it.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_runtime.errors import UnknownNameError
from scripts.harness import RESULTS, run_script
from scripts.tables import (
    calibration,
    capture,
    household,
    methods,
    robustness,
    runs,
    speed,
    third_party,
)
from scripts.tables.shared import NOTHING, ROOT, result, table

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


def readme_success() -> str:
    """Return README's table: a line for each table task, and one for all household tasks."""
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


def readme_speed() -> str:
    """Return README's sentence: round trips beside openpi's in the same run, and a chunk on a GPU."""
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


TABLES: Mapping[str, Callable[[], str]] = {
    **speed.TABLES,
    **methods.TABLES,
    **household.TABLES,
    **robustness.TABLES,
    **runs.TABLES,
    "readme": readme_success,
    "readme-speed": readme_speed,
    **capture.TABLES,
    **third_party.TABLES,
    **calibration.TABLES,
}
PLACE = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
NUMBER = re.compile(r"(?:[\d.]+|–)<!--\s+(?P<source>\w+):\s+(?P<words>[^>]*?)\s+-->")
NUMBERS: Mapping[str, Callable[..., str]] = {
    "lab": methods.number,
    "mobile": household.number,
    "times": speed.times,
    "chunks": speed.chunks,
}
FILE = re.compile(
    r"(<!-- file: (?P<name>[\w./-]+)(?: from (?P<first>\w+))? -->\n).*?(<!-- end of file -->)", re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class Args:
    """Write the tables of the pages from the files that hold the figures."""

    check: bool = False
    """Write nothing; exit code 1 if a page does not match its figures or a result file its maker."""


def main(args: Args) -> int:
    stale = [path for path in pages() if written(old := path.read_text()) != old]
    for path in stale:
        if not args.check:
            path.write_text(written(path.read_text()))
        print(f"{'stale' if args.check else 'written'}: {path.relative_to(ROOT)}")
    if args.check and stale:
        print("run `python -m scripts.tables.docs_tables`", file=sys.stderr)
    wrong = refused_results() if args.check else []
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return int(args.check and bool(stale or wrong))


MADE_BY: Mapping[str, type | tuple[type, ...]] = {
    "command": str,
    "commit": str,
    "date": str,
    "machine": str,
    "seeds": (list, type(None)),
}
"""What a result file states under `made_by`; its seeds are null where nothing is drawn."""
TO_MAKE_AGAIN = frozenset((
    "bench-cameras-100", "bench-cameras-250", "bench-cameras-500", "bench-export", "bench-franka",
    "bench-gpu", "bench-import", "bench-lerobot-robots", "bench-log",
    "bench-part-latency", "bench-peers", "bench-reaction", "bench-stream", "bench-whole-body", "bench-wire",
    "calibration", "lab", "mobile", "robots", "takeover",
))  # fmt: skip
"""Result files of earlier versions that lack some of it. Remove a name once its file is made again: the check
refuses a name that is complete."""


def refused_results() -> list[str]:
    """Return a sentence for each result file that does not state what made it."""
    out = []
    has_history = _git("rev-parse", "--is-shallow-repository") == "false"
    if not has_history:
        print("note: this clone has no history, so commits of result files are not checked")
    for path in sorted(RESULTS.glob("*.json")):
        lacks = lacking(json.loads(path.read_text()), has_history=has_history)
        if lacks and path.stem not in TO_MAKE_AGAIN:
            out.append(
                f"{path.name} lacks {', '.join(lacks)}; make it again with its command of scripts/README.md"
            )
        if not lacks and path.stem in TO_MAKE_AGAIN:
            out.append(
                f"{path.name} is complete; remove it from TO_MAKE_AGAIN of scripts/tables/docs_tables.py"
            )
    return out


def lacking(result: Any, *, has_history: bool) -> list[str]:
    """Return what a result does not state of how it was made; each of its parts may have been made apart."""
    found = list(_made_by(result))
    lacks = {
        key for made in found for key, kind in MADE_BY.items() if not isinstance(made.get(key, ...), kind)
    }
    commits = {made["commit"] for made in found if isinstance(made.get("commit"), str)}
    if has_history and any(_git("cat-file", "-e", f"{commit}^{{commit}}") is None for commit in commits):
        lacks.add("a commit of this history")
    return sorted(lacks) if found else ["made_by"]


def _made_by(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every `made_by` of a result, at any depth."""
    if isinstance(value, dict):
        if isinstance(made := value.get("made_by"), dict):
            yield made
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _made_by(each)


def _git(*words: str) -> str | None:
    """Return the output of git; None: it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout.strip()


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def written(page: str) -> str:
    """Return the page with every table made from its figures."""
    page = PLACE.sub(lambda place: f"{place[1]}{_table(place['name'])}\n{place[3]}", page)
    page = NUMBER.sub(lambda number: f"{_number(number)}{number[0][number[0].index('<') :]}", page)
    return FILE.sub(lambda place: f"{place[1]}{_code(**place.groupdict())}\n{place[4]}", page)


def _number(found: re.Match[str]) -> str:
    return NUMBERS[found["source"]](*found["words"].split())


def _code(name: str, first: str | None) -> str:
    """A file without its first docstring, whose commands stand beside it.

    first: begins the first line that is shown; then what runs the file as a script is left out, too.
    """
    text = re.sub(r'\A""".*?"""\n+', "", (ROOT / name).read_text(), flags=re.DOTALL)
    if first is not None:
        text = text[text.index(f"\n{first}") + 1 :].partition("\n\n\nif __name__")[0]
    return f"```python\n{text.rstrip()}\n```"


def _table(name: str) -> str:
    if name not in TABLES:
        raise UnknownNameError("table", name, TABLES)
    return TABLES[name]()


if __name__ == "__main__":
    run_script(Args, main, description=__doc__)
