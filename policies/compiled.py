"""Keeps torch's compiled code on disk, so that the next start reuses it: `keep_compiled`.

    first start      trace ─► generate ─► compile ─► folder
    later starts     trace ─► found in the folder

torch's default cache lies in the temporary folder, which is emptied at boot. Entries are keyed by torch's
version, the device and the code, so another checkpoint of the same size reuses them too.
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
"""Magic and class; offset of the section headers, size of each, their number, index of the name table."""
_SECTION = struct.Struct("<4xI16xQQ24x")
"""Type, offset, length."""
_STRINGS, _NO_BITS = 3, 8
VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""The environment variable that torch reads."""
_OTHERS_WRITE = 0o022


def usual_folder() -> Path:
    """The default cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robot-runtime" / "compiled"


def keep_compiled(folder: Path | None = None) -> Path:
    """Make this process's torch store compiled code in a folder and look it up there; returns the folder.

    folder: None takes the one set before, here or in the environment, otherwise the default.
    InvalidValueError: the folder cannot be created, or other users can write to it: its content is executed.
    """
    if folder is None and VARIABLE in os.environ:
        remove_damaged(Path(os.environ[VARIABLE]))
        return Path(os.environ[VARIABLE])
    folder = (folder or usual_folder()).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        with tempfile.TemporaryFile(dir=folder):
            pass  # a read-only folder would otherwise fail in the middle of compiling
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidValueError(
            f"compiled code cannot be kept in {folder}: {why}; name another folder (--compile-cache)"
        ) from error
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & _OTHERS_WRITE:
        raise InvalidValueError(
            f"others can write to {folder}, and torch runs the code it finds there; do `chmod go-w {folder}` "
            "or name another folder"
        )
    os.environ[VARIABLE] = str(folder)
    remove_damaged(folder)
    return folder


def remove_damaged(folder: Path) -> None:
    """Remove files that a compiler left incomplete when it was killed or the disk was full.

    torch compiles them again. It would load them as they are, and a truncated library kills the process
    (SIGBUS).
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
    """Whether a 64-bit ELF file contains all sections that its header declares."""
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
    """Whether the file was removed; a process that is compiling it holds torch's lock of that name."""
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
    """A short message for an error of torch's compiler, in place of its hundred lines; None for any other."""
    if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return None
    reason = "; ".join(line.strip() for line in str(error).splitlines()[:3] if line.strip())
    folder = os.environ.get(VARIABLE, usual_folder())
    return (
        f"torch could not compile the policy ({type(error).__name__}: {reason[:300]}). If it could before, "
        f"its cache {folder} may be damaged in a way not detected at start; remove that folder"
    )


def start_compilers(device_type: str) -> None:
    """Start torch's compiler processes, which takes seconds, while this process reads weights."""
    if device_type == "cuda":
        from torch._inductor.async_compile import maybe_warm_pool

        maybe_warm_pool()
