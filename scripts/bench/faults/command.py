"""`python -m scripts.bench faults`: every fault of the table injected, and judged by its figures."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from robot_runtime.cli.options import Count, Maybe, OutputFile, Several, Within
from scripts.harness import write_result


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence warnings, of which these runs are full."""
    logger = logging.getLogger("robot_runtime")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@dataclass(frozen=True, kw_only=True)
class BenchFaults:
    """Inject every fault that a policy's runtime has to survive, and measure the robot's reaction.

    Breaks real processes, sockets and disks under a moving robot. Each row has limits on its figures; a row
    in which anything undefined happens has failed, too. Exit code 1 if a row has failed.
    """

    rows: Several[Annotated[int, Within(1, 19)]] = ()
    """Numbers of the rows to run; all if not given."""
    repeats: Maybe[Count] = None
    """Injections of each row; the row's own number if not given."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""

    def main(self) -> int:
        from scripts.bench.faults.rows import ROWS
        from scripts.tables.robustness import faults, figures_of_faults, surprises

        done: list[dict[str, object]] = []
        with _without_warnings():
            for row in ROWS:
                if not self.rows or row.number in self.rows:
                    done.append(row.run(self.repeats or row.times).to_plain())
                    if self.json is not None:  # so that a row that hangs loses no other
                        write_result(self.json, {"rows": done})
        print(faults(done), figures_of_faults(done), f"Surprises: {surprises(done)}", sep="\n\n")
        return int(any(row["verdict"] == "missed" for row in done))
