"""Results that took long to make: they record how they were made, and are saved elsewhere if necessary."""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

from robot_runtime.errors import RobotRuntimeError

_PACKAGES = (
    "robot-runtime", "numpy", "pin", "pyzmq", "msgspec", "ruckig", "mujoco", "franky-sim", "torch",
    "safetensors", "lerobot", "diffusers", "transformers", "opencv-python-headless",
)  # fmt: skip
_INSTRUCTION_SETS = frozenset((
    "avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "amx_int8",
    "asimd", "sve", "bf16",
))  # fmt: skip
"""Instruction sets that affect how libraries multiply matrices, as Linux names them."""


def keep(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write(path)` make a file or a folder, and `write` another path in a temporary folder if that
    fails.

    RobotRuntimeError: the other path was needed; the message names it. Raises the error of `write` if that
        fails, too.
    """
    try:
        write(path)
    except Exception as error:  # libraries raise their own for a full disk
        folder = Path(tempfile.mkdtemp(prefix="robot-runtime-"))
        other = folder / path.name
        try:
            write(other)
        except BaseException:  # an interrupt, too, leaves an incomplete result
            shutil.rmtree(folder, ignore_errors=True)
            raise
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise RobotRuntimeError(f"{path} cannot be written ({why}): it is kept as {other}") from error


def keep_text(path: Path, text: str) -> None:
    """As `keep`; the previous content is replaced only by the whole text."""
    keep(path, lambda to: _write_whole(to, text))


def _write_whole(path: Path, text: str) -> None:
    path = path.resolve()
    if path.exists() and not path.is_file():  # a device or a pipe
        path.write_text(text)
        return
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def result_json(data: Mapping[str, object], *, seeds: Iterable[int] | None = None) -> str:
    """Return the text of a result file: the result, and under `made_by` how to reproduce it."""
    return json.dumps({"made_by": made_by(seeds=seeds), **data}, indent=1) + "\n"


def made_by(*, seeds: Iterable[int] | None = None) -> dict[str, object]:
    """Return date, command, seeds, processor, library versions, and this code's commit if there is one.

    seeds: of the episodes or draws; None if nothing is drawn.
    """
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": typed_command(),
        "seeds": None if seeds is None else list(seeds),
        **code(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "versions": versions(),
    }


def typed_command() -> str:
    """Return the command of this process, as a user types it."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)  # of a module that `python -m` runs
    program = (
        [Path(sys.argv[0]).name] if spec is None else ["python", "-m", spec.name.removesuffix(".__main__")]
    )
    return shlex.join([*program, *sys.argv[1:]])


def processor() -> dict[str, object]:
    """Return its instruction sets, torch's choice if it is loaded, and oneDNN's limit if one is set."""
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:  # not Linux
        words = []
    found: dict[str, object] = {"instruction_sets": sorted(_INSTRUCTION_SETS.intersection(words))}
    if (torch := sys.modules.get("torch")) is not None:
        found["torch"] = torch.backends.cpu.get_cpu_capability()
    if (limit := os.environ.get("ONEDNN_MAX_CPU_ISA")) is not None:
        found["ONEDNN_MAX_CPU_ISA"] = limit
    return found


def versions() -> dict[str, str]:
    """Return the versions of the installed packages that affect results."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def code() -> dict[str, object]:
    """Return this code's commit and whether it has changes; None for both outside a repository."""
    commit = _git("rev-parse", "HEAD") if _git("ls-files", "--error-unmatch", __file__) else None
    changed = None if commit is None else bool(_git("status", "--porcelain", "--untracked-files=no"))
    return {"commit": commit, "is_changed": changed}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True, text=True, timeout=5.0, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
