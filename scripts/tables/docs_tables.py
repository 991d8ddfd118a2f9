"""Write the tables of README.md and docs/ from the files that hold the figures.

    <!-- table: loop -->
    ...                         this part is written from scripts/results
    <!-- end of table -->

    90<!-- lab: strike pipelined-faster 400ms --> % succeed         a number of a sentence

    <!-- file: examples/own_policy.py from ROWS -->
    ...                         this part is that file, for README.md, which no builder makes
    <!-- end of file -->

`--check` writes nothing, and fails if a page does not match its figures.
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from robot_runtime.errors import UnknownNameError
from scripts.harness import run_script
from scripts.tables import (
    calibration,
    capture,
    clocks,
    hand_eye,
    household,
    methods,
    readme,
    robustness,
    runs,
    speed,
    third_party,
)
from scripts.tables.shared import ROOT

TABLES: Mapping[str, Callable[[], str]] = {
    **speed.TABLES,
    **methods.TABLES,
    **household.TABLES,
    **hand_eye.TABLES,
    **robustness.TABLES,
    **runs.TABLES,
    **readme.TABLES,
    **capture.TABLES,
    **third_party.TABLES,
    **calibration.TABLES,
    **clocks.TABLES,
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
    """Write nothing; exit code 1 if a page does not match its figures."""


def main(args: Args) -> int:
    stale = [path for path in pages() if written(old := path.read_text()) != old]
    for path in stale:
        if not args.check:
            path.write_text(written(path.read_text()))
        print(f"{'stale' if args.check else 'written'}: {path.relative_to(ROOT)}")
    if args.check and stale:
        print("run `python -m scripts.tables.docs_tables`", file=sys.stderr)
        return 1
    return 0


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
