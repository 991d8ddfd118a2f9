"""Keys of the terminal that the run was started in: `KeySwitch`, one key, for arming; `Terminal`, all.

It stops nothing and is no safety function. A terminal reports strokes, not releases: a key that is held
repeats, but the first repeat comes after some 500 ms and the others depend on the desktop, so releasing it
would be noticed after half a second or never. It is therefore not taken for `hold_to_run`.

From `open` on the terminal gives keys at once and without echo; it is restored by `close`, at
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
"""If the pipe at standard input ends without a line, restores the terminal at standard output, unless its
settings have changed since; in the background, so that it is no one's child."""


class Terminal:
    """Reads strokes of a terminal's keys, from `open` to `close`."""

    def __init__(self, what: str, *, descriptor: int | None = None) -> None:
        """
        what: the purpose, for error messages.
        descriptor: of the terminal; None: standard input.
        """
        self._what, self._fd = what, descriptor or 0
        self._before: list | None = None
        self._guard: int | None = None

    def open(self) -> None:
        """Make the terminal give keys at once. DriverError: standard input is no terminal."""
        if self._before is not None:
            return
        if not os.isatty(self._fd):
            raise DriverError(f"{self._what} needs a terminal, and standard input is none")
        if not _is_in_front(self._fd):  # setting the terminal would stop this process
            raise DriverError(
                f"{self._what} cannot be pressed: this process is in the background of its terminal"
            )
        self._before = termios.tcgetattr(self._fd)
        atexit.register(self.close)
        self._guard = _set_and_guarded(self._fd)
        termios.tcflush(self._fd, termios.TCIFLUSH)

    def fileno(self) -> int:
        """Return the descriptor, which is readable when there are strokes."""
        return self._fd

    def read(self) -> bytes:
        """Return the keys that were struck since the last read; never waits. DriverError: no terminal."""
        try:
            if not select.select([self._fd], [], [], 0.0)[0]:
                return b""
            if not _is_in_front(self._fd):  # the strokes are for another process; reading stops this one
                return b""
            struck = os.read(self._fd, 1024)
        except OSError as error:
            raise DriverError(f"the terminal is gone: {error}") from error
        if not struck:
            raise DriverError("the terminal is gone")
        return struck

    def close(self) -> None:
        """Restore the terminal."""
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
    """A key of a terminal as a switch; pressed once for each stroke."""

    tells_release = False

    def __init__(self, key: str = "a", *, descriptor: int | None = None) -> None:
        """
        key: one character; a letter works in either case, because of Caps Lock.
        descriptor: of the terminal; None: standard input.
        InvalidValueError: not a single character.
        """
        if len(key) != 1 or not key.isprintable():
            raise InvalidValueError(f"key is one character, got {key!r}")
        self.name = {" ": "the space bar"}.get(key, key)
        self._keys = {each.encode() for each in (key, key.lower(), key.upper())}
        self._terminal = Terminal(f"the key {self.name}", descriptor=descriptor)

    def open(self) -> None:
        """Make the terminal give keys at once. DriverError: standard input is no terminal."""
        self._terminal.open()

    def fileno(self) -> int:
        """Return the descriptor, which is readable when there are strokes."""
        return self._terminal.fileno()

    def read(self) -> bool:
        """Whether the key was struck since the last read; other keys are dropped. DriverError: no
        terminal."""
        struck = self._terminal.read()
        return any(key in struck for key in self._keys)

    def close(self) -> None:
        """Restore the terminal."""
        self._terminal.close()


def _is_in_front(fd: int) -> bool:
    """Whether this process is in the foreground of the terminal, if it is its terminal."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # a terminal that controls no process has none in the foreground
        return True


def _set_and_guarded(fd: int) -> int | None:
    """Set the terminal; return a pipe whose end restores it. None where there is no `stty`."""
    before = _stty(fd)
    tty.setcbreak(fd)  # Ctrl-C stays Ctrl-C
    reader, writer = os.pipe()
    try:
        subprocess.run(
            ["sh", "-c", _GUARD, before, _stty(fd)],
            stdin=reader,
            stdout=fd,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # neither Ctrl-C nor the end of a process group must reach it
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
