"""A page's process, seen from the command whose page it is: `PageProcess`.

this process                          the page's, which may die: the command goes on and reports it
PageProcess ── lines of JSON ─► its standard input; the process ends with it
            ◄─ the address ──── its standard output, once
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import Event, Thread

import msgspec

import robot_runtime

COMMAND = (sys.executable, "-P", "-m", "robot_runtime.page")
"""Starts the page of a run or of a calibration."""
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8080
_ENDS_WITHIN_S = 3.0


class PageProcess(AbstractContextManager["PageProcess"]):
    """A running page process: starts with the constructor, ends with the block."""

    def __init__(self, command: Sequence[str], config: msgspec.Struct, *, say: Callable[[str], None]) -> None:
        """
        command: starts it; it reads `config` from its standard input, as one line of JSON.
        say: receives the page's address, from a thread of its own.
        """
        self._say = say
        self.url = ""
        """Address of the page; empty until it is up."""
        self._has_reported = Event()
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 closed with the block
        root = str(Path(robot_runtime.__file__).parents[1])  # it imports what this process does
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,  # Ctrl-C is for the command
            env=os.environ | {"PYTHONPATH": os.pathsep.join((root, os.environ.get("PYTHONPATH", "")))},
        )
        self.pid = self._process.pid
        with suppress(OSError):  # it has died already: `why_ended` reports it
            self.tell(msgspec.json.encode(config))
        Thread(target=self._await_url, name="page's address", daemon=True).start()

    def tell(self, line: bytes) -> None:
        """Send one more line, without its end. Blocks while the process does not read; OSError: it ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def why_ended(self, within_s: float = 0.0) -> str | None:
        """The last line of its stderr, if it ends within this time; None: it still runs."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        self._complaints.seek(0)
        lines = self._complaints.read().strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def is_up(self, within_s: float) -> bool:
        """Wait until it is up; returns early if it has ended."""
        self._has_reported.wait(within_s)
        return bool(self.url)

    def kill(self) -> None:
        """Kill it at once."""
        self._process.kill()

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()  # it ends by itself
        try:
            self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._complaints.close()

    def _await_url(self) -> None:
        assert self._process.stdout is not None
        with suppress(OSError, ValueError, KeyError, TypeError):
            self.url = json.loads(self._process.stdout.readline())["url"]
            self._say(f"page: {self.url}")
        self._has_reported.set()
