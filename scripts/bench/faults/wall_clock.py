"""`WallClock`: a wall clock that can be set for some processes only, through a preloaded library.

All processes share the kernel's own clock, and libfaketime breaks sleeps on the monotonic clock, so only
these few functions are replaced. Needs a C compiler.
"""

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset_s;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("WALL_CLOCK_FILE"), O_RDONLY);
    offset_s = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, out);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) out->tv_sec += *offset_s;
    return failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


def no_compiler() -> str:
    return "" if shutil.which("cc") else "needs a C compiler (cc), for a wall clock of its own"


class WallClock:
    """Wall clock of the processes that are started with `env`, and of their children."""

    def __init__(self, folder: Path) -> None:
        self._file, library = folder / "offset", folder / "wall_clock.so"
        self._file.write_bytes(bytes(8))
        compiler = ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library), "-ldl"]
        subprocess.run(compiler, input=_SOURCE, text=True, check=True, capture_output=True)
        self.env: Mapping[str, str] = os.environ | {
            "LD_PRELOAD": str(library),
            "WALL_CLOCK_FILE": str(self._file),
        }


def set_by(offset_s: int) -> None:
    """Set the clock to an offset from the machine's own, for all such processes; call it in one of them
    [s]."""
    with open(os.environ["WALL_CLOCK_FILE"], "r+b") as file, mmap.mmap(file.fileno(), 8) as memory:
        memory[:] = struct.pack("<q", offset_s)
