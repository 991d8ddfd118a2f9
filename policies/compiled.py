"""Where torch keeps what it has compiled, so that a second start finds it: `keep_compiled`.

    first start      trace ─► generate ─► compile ─► folder
    the next ones    trace ─► found in the folder

torch's own place is below the folder for temporary files, which is emptied when the machine starts. What is
kept is known by torch's version, the device and the code: another checkpoint of the same size finds it too.
"""

import fcntl
import logging
import os
import struct
import tempfile
from contextlib import nullcontext
from pathlib import Path

from robot_runtime.errors import InvalidValueError

logger = logging.getLogger(__name__)
_ELF = struct.Struct("<5s35xQ10xHHH")
"""Magic and class; where the section headers begin, size of each, how many, which has their names."""
_SECTION = struct.Struct("<4xI16xQQ24x")
"""Type, where it begins, its length."""
_STRINGS, _NO_BITS = 3, 8
VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""Which torch looks up."""
_OTHERS_WRITE = 0o022


def usual_folder() -> Path:
    """Where it is kept if nobody says another place."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robot-runtime" / "compiled"


def keep_compiled(folder: Path | None = None) -> Path:
    """Have this process's torch keep what it compiles from now on in a folder, and look there; returns it.

    folder: None takes what was said before, here or in the environment, and else the usual one.
    InvalidValueError: it cannot be made, or others may write to it: what lies there is run.
    """
    if folder is None and VARIABLE in os.environ:
        remove_damaged(Path(os.environ[VARIABLE]))
        return Path(os.environ[VARIABLE])
    folder = (folder or usual_folder()).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        with tempfile.TemporaryFile(dir=folder):
            pass  # a read-only one would be found out in the middle of compiling
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidValueError(
            f"what torch compiles cannot be kept in {folder}: {why}; name another folder (--compile-cache)"
        ) from error
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & _OTHERS_WRITE:
        raise InvalidValueError(
            f"others can write to {folder}, and what torch finds there is run: `chmod go-w {folder}`, or "
            "another folder"
        )
    os.environ[VARIABLE] = str(folder)
    remove_damaged(folder)
    return folder


def remove_damaged(folder: Path) -> None:
    """Remove what a compiler left unfinished that was killed or had no disk: torch compiles it again.

    torch runs what it finds there: of a library that ends too early the process dies (SIGBUS).
    """
    libraries = [path for path in folder.rglob("*.so") if not is_whole_library(path)]
    empty = (p for p in folder.rglob("*") if p.suffix not in (".lock", ".so") and p.is_file())
    damaged = [*libraries, *(path for path in empty if not path.stat().st_size)]
    removed = [path for path in damaged if _remove_unless_compiling(folder, path)]
    if removed:
        logger.warning(
            "%d damaged files in %s are removed and compiled again: %s",
            len(removed), folder, ", ".join(path.name for path in removed[:3]),
        )  # fmt: skip


def is_whole_library(path: Path) -> bool:
    """Whether a 64-bit ELF file has all sections that its header counts."""
    try:
        with path.open("rb") as file:
            header, size = file.read(_ELF.size), path.stat().st_size
            magic, table_at, entry_size, num, names = _ELF.unpack(header)
            if magic != b"\x7fELF\x02" or entry_size != _SECTION.size or not 0 < names < num:
                return False
            file.seek(table_at)
            sections = list(_SECTION.iter_unpack(file.read(num * entry_size)))
    except (OSError, struct.error):
        return False
    if len(sections) != num or sections[names][0] != _STRINGS:
        return False
    return all(kind == _NO_BITS or at + length <= size for kind, at, length in sections)


def _remove_unless_compiling(folder: Path, path: Path) -> bool:
    """True if it was removed; another process that is at it holds torch's lock of that name."""
    lock = folder / "locks" / f"{path.name.partition('.')[0]}.lock"
    with lock.open("a") if lock.exists() else nullcontext() as held:
        try:
            if held is not None:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        except OSError:
            return False
    return True


def compiler_trouble(error: Exception) -> str | None:
    """What to tell of an error of torch's compiler, in place of its hundred lines; None for any other."""
    if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return None
    said = "; ".join(line.strip() for line in str(error).splitlines()[:3] if line.strip())
    folder = os.environ.get(VARIABLE, usual_folder())
    return (
        f"torch could not compile the policy ({type(error).__name__}: {said[:300]}). If it did before, what "
        f"it keeps in {folder} may be damaged in a way that is not seen at start: remove that folder"
    )


def start_compilers(device_type: str) -> None:
    """Have torch start the processes that compile, which takes seconds, while this one reads weights."""
    if device_type == "cuda":
        from torch._inductor.async_compile import maybe_warm_pool

        maybe_warm_pool()
