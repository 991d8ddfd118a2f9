"""Where torch keeps what it has compiled, so that a second start finds it: `keep_compiled`.

    first start      trace ─► generate ─► compile ─► folder
    the next ones    trace ─► found in the folder

torch's own place is below the folder for temporary files, which is emptied when the machine starts. What is
kept is known by torch's version, the device and the code: another checkpoint of the same size finds it too.
"""

import os
import tempfile
from pathlib import Path

from robot_runtime.errors import InvalidValueError

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
    return folder


def compiler_trouble(error: Exception) -> str | None:
    """What to tell of an error of torch's compiler, in place of its hundred lines; None for any other."""
    if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return None
    said = "; ".join(line.strip() for line in str(error).splitlines()[:3] if line.strip())
    folder = os.environ.get(VARIABLE, usual_folder())
    return (
        f"torch could not compile the policy ({type(error).__name__}: {said[:300]}). If it did before, what "
        f"it keeps in {folder} is damaged, as by a power cut: remove that folder"
    )


def start_compilers(device_type: str) -> None:
    """Have torch start the processes that compile, which takes seconds, while this one reads weights."""
    if device_type == "cuda":
        from torch._inductor.async_compile import maybe_warm_pool

        maybe_warm_pool()
