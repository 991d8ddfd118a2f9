"""The settings that all code in one process shares: `process_state`, and what changed of it, `changes`.

A library call or a test that leaves one of them changed alters every later call and test in the process.
"""

import ctypes
import gc
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

_PR_GET_TIMERSLACK = 30
_SET_BY_LIBRARIES = (
    "PYTEST_CURRENT_TEST",
    "PYOPENGL_PLATFORM",  # mujoco.egl
    "TORCHINDUCTOR_CACHE_DIR",  # torch._dynamo
    "LD_LIBRARY_PATH",  # cv2
    "OPENCV_VIDEOIO_MSMF_ENABLE_HW_TRANSFORMS",  # LeRobot's cameras
    "PYGAME_HIDE_SUPPORT_PROMPT",  # pymunk, LeRobot
)
"""Environment variables that pytest sets for each test, or a library once, when it is imported."""
_ABSENT = "absent"


def process_state() -> dict[str, Any]:
    """Each shared setting by name. torch and OpenCV are looked at only where they are loaded.

    Only for the main thread. Warning filters are not among them: pytest gives each test its own.
    """
    return _of_system() | _of_python() | _of_torch() | _of_opencv()


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """One line for each setting that changed; none for a library that was loaded in between."""
    lines = []
    for name in before:
        old, new = before[name], after.get(name, _ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            differing = [key for key in {**old, **new} if old.get(key, _ABSENT) != new.get(key, _ABSENT)]
            old, new = ({key: each.get(key, _ABSENT) for key in differing} for each in (old, new))
        if old != new:
            lines.append(f"{name}: {old!r} before, {new!r} after")
    return lines


def _of_system() -> dict[str, Any]:
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "environment": {k: v for k, v in os.environ.items() if k not in _SET_BY_LIBRARIES},
        "working folder": os.getcwd(),
        "umask": umask,
        "limit of open files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "limit of file size": resource.getrlimit(resource.RLIMIT_FSIZE),
        "limit of memory": resource.getrlimit(resource.RLIMIT_DATA),
        "scheduling policy": os.sched_getscheduler(0),
        "scheduling priority": os.sched_getparam(0).sched_priority,
        "nice value": os.getpriority(os.PRIO_PROCESS, 0),
        "processor affinity": os.sched_getaffinity(0),
        "timer slack [ns]": ctypes.CDLL(None).prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0),
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "signal handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
    }


def _of_python() -> dict[str, Any]:
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    return {
        "signal wakeup descriptor": wakeup,
        "garbage collector": (gc.isenabled(), gc.get_threshold()),
        "switch interval [s]": sys.getswitchinterval(),
        "exception hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook),
        "numpy error state": np.geterr(),
        "logging": {name: _of_logger(name) for name in ("root", "robot_runtime")},
    }


def _of_logger(name: str) -> tuple[Any, ...]:
    logger = logging.getLogger(None if name == "root" else name)
    return logger.level, list(logger.handlers), logger.propagate, logger.disabled


def _of_torch() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    backends = torch.backends
    precisions = {
        "all": backends.fp32_precision,
        "mkldnn": backends.mkldnn.fp32_precision,
        "mkldnn.matmul": backends.mkldnn.matmul.fp32_precision,
        "mkldnn.conv": backends.mkldnn.conv.fp32_precision,
        "mkldnn.rnn": backends.mkldnn.rnn.fp32_precision,
        "cuda.matmul": backends.cuda.matmul.fp32_precision,
        "cudnn": backends.cudnn.fp32_precision,
        "cudnn.conv": backends.cudnn.conv.fp32_precision,
        "cudnn.rnn": backends.cudnn.rnn.fp32_precision,
    }
    flags = {
        "mkldnn.enabled": torch._C._get_mkldnn_enabled(),
        "mkldnn.deterministic": torch._C._get_mkldnn_deterministic(),
        "cudnn.enabled": backends.cudnn.enabled,
        "cudnn.benchmark": backends.cudnn.benchmark,
        "cudnn.deterministic": backends.cudnn.deterministic,
        "deterministic algorithms": torch.get_deterministic_debug_mode(),
        "gradients": torch.is_grad_enabled(),
    }
    return {f"torch fp32_precision of {name}": value for name, value in precisions.items()} | {
        "torch float32_matmul_precision": _matmul_precision(torch),
        "torch threads": torch.get_num_threads(),
        "torch threads between operations": torch.get_num_interop_threads(),
        "torch default dtype": torch.get_default_dtype(),
        "torch default device": torch.get_default_device(),
        "torch flags": flags,
    }


def _matmul_precision(torch: Any) -> str:
    try:
        found: str = torch.get_float32_matmul_precision()
    except RuntimeError:  # its getter raises where backends were set one by one
        return "mixed"
    return found


def _of_opencv() -> dict[str, Any]:
    cv2 = sys.modules.get("cv2")
    return {} if cv2 is None else {"OpenCV threads": cv2.getNumThreads()}
