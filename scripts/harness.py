"""Shared code of the tools of `scripts`: runs a command, and writes a result.

Options are those of `robot_runtime.cli.options`; a command ends with one line. A result file states under
`made_by` which command, commit, machine and seeds made it (`robot_runtime.results`).
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from robot_runtime.cli import run_to_the_end

if TYPE_CHECKING:
    import numpy as np

ROOT = Path(__file__).parents[1]
"""Of the repository."""
RESULTS = ROOT / "scripts" / "results"
"""Figures that README and pages show."""


def run_script[T](
    options: type[T], main: Callable[[T], int | None], *, description: str | None = None
) -> NoReturn:
    """Read the options, try each, and run; ends the process with the exit code.

    options: a dataclass whose annotations are those of `cli.options`: a number that would leave nothing to be
        done is refused, or what was never tried would pass.
    """

    def run() -> int | None:
        return main(_checked(options, sys.argv[1:], program=sys.argv[0], description=description))

    run_to_the_end(run)


def run_group(choices: Any, words: Sequence[str], *, program: str, description: str) -> int:
    """Run the command of a group that the first word names; returns the exit code.

    choices: a union of dataclasses with a method `main`, each an `Annotated[..., subcommand(name)]`.
    """
    kinds = {conf.name: kind for kind, conf in map(get_args, get_args(choices))}
    if words and words[0] in kinds:
        name, *rest = words
        command = _checked(kinds[name], rest, program=f"{program} {name}")
    else:
        command = _checked(choices, words, program=program, description=description)
    return int(command.main())


def _checked(kind: Any, words: Sequence[str], *, program: str, description: str | None = None) -> Any:
    from robot_runtime.cli.commands import parsed
    from robot_runtime.cli.options import check

    args = parsed(kind, words, program=program, description=description)
    check(args)
    return args


def write_result(path: Path, data: Mapping[str, object], *, seeds: Iterable[int] | None = None) -> None:
    """Write a result with what it takes to make it again, or keep it elsewhere if `path` cannot be written.

    seeds: of the episodes or draws; None if nothing is drawn.
    """
    from robot_runtime.results import keep_text, result_json

    keep_text(path, result_json(data, seeds=seeds))


def finish(
    data: Mapping[str, object], path: Path | None, *tables: str, seeds: Iterable[int] | None = None
) -> int:
    """Print the tables of a result, and write it if a file is given; returns the exit code 0.

    tables: those that `scripts.tables` writes into the pages. seeds: as of `write_result`.
    """
    print(*tables, sep="\n\n")
    if path is not None:
        write_result(path, data, seeds=seeds)
    return 0


def percentiles(times: "Sequence[float] | np.ndarray") -> dict[str, float]:
    """p50, p95 and p99; NaN of nothing."""
    import numpy as np

    values = np.percentile(times, [50, 95, 99]) if len(times) else np.full(3, np.nan)
    return dict(zip(("p50", "p95", "p99"), map(float, values), strict=True))
