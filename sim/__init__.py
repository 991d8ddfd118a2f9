"""MuJoCo in place of hardware: the same driver protocols, in real time or under a virtual clock."""

import signal
from contextlib import suppress

# `import mujoco` imports glfw, which starts a Python that asks its library's version. Ctrl-C reaches that
# process too, and it would print a traceback: it inherits a mask that keeps the signal from it.
_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
try:
    with suppress(ImportError):
        import glfw  # noqa: F401
finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask)
