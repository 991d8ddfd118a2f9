"""Keys of the terminal that the run was started in: `KeySwitch`, one of them, to arm with; `Terminal`, all.

It stops nothing and is no safety function. A terminal tells strokes, not releases: a key that is held
repeats, but the first repeat comes after some 500 ms and the others depend on the desktop, so letting go
would be noticed after half a second or never. It is therefore not taken for `hold_to_run`.

The terminal gives keys at once and unseen from `open` on, and is put back as it was by `close`, at
the end of the process, and, if that is killed, by a shell that waits for its death.
"""

import atexit
import contextlib
import os
import select
import subprocess
import termios
import tty

from robot_runtime.errors import DriverError, InvalidValueError

_GUARD = """
exec 3<&0 4>&1
(read farewell <&3 || { [ "$(stty -g <&4)" = "$1" ] && stty "$0" <&4; }) >/dev/null &
"""
"""If the pipe at standard input ends without a line, sets the terminal at standard output, if that is still
as we had it; in the background, so that it is nobody's child."""


class Terminal:
    """Strokes of a terminal's keys, from `open` to `close`."""

    def __init__(self, what: str, *, descriptor: int | None = None) -> None:
        """
        what: is wanted of it, for the sentences that say it cannot be had.
        descriptor: of the terminal; None: standard input.
        """
        self._what, self._fd = what, descriptor or 0
        self._before: list | None = None
        self._guard: int | None = None

    def open(self) -> None:
        """Have the terminal give keys at once. DriverError: standard input is no terminal."""
        if self._before is not None:
            return
        if not os.isatty(self._fd):
            raise DriverError(f"{self._what} is one of a terminal, and standard input is none")
        if not _is_in_front(self._fd):  # setting the terminal would stop this process
            raise DriverError(
                f"nobody could press {self._what}: this process is in the background of its terminal"
            )
        self._before = termios.tcgetattr(self._fd)
        atexit.register(self.close)
        self._guard = _set_and_guarded(self._fd)
        termios.tcflush(self._fd, termios.TCIFLUSH)

    def fileno(self) -> int:
        """Readable when there are strokes."""
        return self._fd

    def read(self) -> bytes:
        """What was struck since the last read; never waits. DriverError: no terminal."""
        try:
            if not select.select([self._fd], [], [], 0.0)[0]:
                return b""
            if not _is_in_front(self._fd):  # what is struck is for another, and reading it would stop us
                return b""
            struck = os.read(self._fd, 1024)
        except OSError as error:
            raise DriverError(f"the terminal is gone: {error}") from error
        if not struck:
            raise DriverError("the terminal is gone")
        return struck

    def close(self) -> None:
        """Put the terminal back as it was."""
        before, self._before = self._before, None
        if before is None:
            return
        atexit.unregister(self.close)
        with contextlib.suppress(OSError, termios.error):  # it is gone
            if _is_in_front(self._fd):
                termios.tcsetattr(self._fd, termios.TCSANOW, before)
        guard, self._guard = self._guard, None
        if guard is not None:
            os.write(guard, b"farewell\n")
            os.close(guard)


class KeySwitch:
    """A key of a terminal; pressed once for each stroke."""

    tells_release = False

    def __init__(self, key: str = "a", *, descriptor: int | None = None) -> None:
        """
        key: one character; of a letter the capital one does, too: with Caps Lock on there is no other.
        descriptor: of the terminal; None: standard input.
        InvalidValueError: no single character.
        """
        if len(key) != 1 or not key.isprintable():
            raise InvalidValueError(f"key is one character, got {key!r}")
        self.name = {" ": "the space bar"}.get(key, key)
        self._keys = {each.encode() for each in (key, key.lower(), key.upper())}
        self._terminal = Terminal(f"the key {self.name}", descriptor=descriptor)

    def open(self) -> None:
        """Have the terminal give keys at once. DriverError: standard input is no terminal."""
        self._terminal.open()

    def fileno(self) -> int:
        """Readable when there are strokes."""
        return self._terminal.fileno()

    def read(self) -> bool:
        """Whether the key was struck since the last read; other keys are lost. DriverError: no terminal."""
        struck = self._terminal.read()
        return any(key in struck for key in self._keys)

    def close(self) -> None:
        """Put the terminal back as it was."""
        self._terminal.close()


def _is_in_front(fd: int) -> bool:
    """Whether the terminal's keys are for this process, as far as it is its terminal."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # no process is in front of one that controls none
        return True


def _set_and_guarded(fd: int) -> int | None:
    """Set the terminal; a pipe whose end has it put back. None where there is no `stty`."""
    before = _stty(fd)
    tty.setcbreak(fd)  # Ctrl-C stays Ctrl-C
    reader, writer = os.pipe()
    try:
        subprocess.run(
            ["sh", "-c", _GUARD, before, _stty(fd)],
            stdin=reader,
            stdout=fd,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # neither a Ctrl-C nor the end of a process group is meant for it
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        os.close(writer)
        return None
    finally:
        os.close(reader)
    return writer


def _stty(fd: int) -> str:
    try:
        done = subprocess.run(["stty", "-g"], stdin=fd, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
