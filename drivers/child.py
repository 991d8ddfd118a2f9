"""Two processes that never wait for each other: `Newest` messages in shared memory, `Child` at the other end.

control loop's process                        driver's own process (the only one that imports the vendor's)
write ─► Newest of orders ═══════════════════► its loop ─► robot
read  ◄─ Newest of reports ◄══════════════════ its loop ◄─ robot
         pipe, open while this process lives ─► its end: stop the robot and exit
"""

import atexit
import mmap
import os
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import msgspec

from robot_runtime.errors import DriverError

SLOT = 4096
"""Bytes for one message."""
MESSAGES = 4 * SLOT
"""Bytes of the memory for orders and reports; a driver may append more."""
_ROOT = str(Path(__file__).parents[1])
"""Folder of this `drivers`; a user's folder may have the same name."""
_HEADER = struct.Struct("<QII")
START_S = 30.0
"""How long a process may take to import what it needs, on a busy machine [s]."""
END_S = 5.0
"""How long it may take to bring the robot to rest and exit [s]."""


class Newest[T]:
    """The newest message of one writer. Two alternating slots with checksums, so that reads are complete."""

    def __init__(self, kind: type[T], descriptor: int, offset: int = 0) -> None:
        """descriptor: of memory that both processes map; offset: of the 2 slots in it [bytes]."""
        self._memory = mmap.mmap(descriptor, MESSAGES)
        self._offset, self._number = offset, 0
        self._last: tuple[int, T] | None = None
        self._encoder, self._decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(kind)

    def put(self, message: T) -> None:
        body = self._encoder.encode(message)
        if len(body) > SLOT - _HEADER.size:
            raise ValueError(f"a message of {len(body)} bytes does not fit")
        self._number += 1
        at = self._offset + SLOT * (self._number % 2)
        head = _HEADER.pack(self._number, len(body), zlib.crc32(body, self._number & 0xFFFFFFFF))
        self._memory[at : at + len(head) + len(body)] = head + body

    def get(self) -> tuple[int, T] | None:
        """The newest message and its number; None: there has been none."""
        for _ in range(8):
            if self._last is not None and self._newest_number() == self._last[0]:
                break
            whole = [each for each in (self._slot(0), self._slot(1)) if each is not None]
            if whole:
                number, body = max(whole)
                if self._last is None or number > self._last[0]:
                    self._last = number, self._decoder.decode(body)
                break
        return self._last

    def _newest_number(self) -> int:
        """Return the newest number, of a complete message or one that is being written."""
        at = self._offset
        return max(_HEADER.unpack_from(self._memory, at + SLOT * i)[0] for i in (0, 1))

    def _slot(self, i: int) -> tuple[int, bytes] | None:
        """Return number and body of a slot, unless it is being written."""
        at = self._offset + SLOT * i
        copy = self._memory[at : at + SLOT]
        number, length, checksum = _HEADER.unpack_from(copy)
        body = copy[_HEADER.size : _HEADER.size + length]
        if number == 0 or zlib.crc32(body, number & 0xFFFFFFFF) != checksum:
            return None
        return number, body


class Child[Order, Report]:
    """A driver's own process. It stops the robot and exits when this process closes it, exits or dies."""

    def __init__(
        self,
        module: str,
        config: msgspec.Struct,
        order: type[Order],
        report: type[Report],
        *,
        what: str,
        start_s: float = START_S,
    ) -> None:
        """
        module: whose `main(config, descriptor)` it runs.
        what: the device, for messages: "a Franka arm at 172.16.0.2".
        start_s: how long it may take to its first report [s].

        DriverError: it cannot be set up.
        """
        self.what, self._start_s = what, start_s
        self.descriptor = descriptor = os.memfd_create(module)
        """Descriptor of the shared memory; the child may enlarge it."""
        os.ftruncate(descriptor, MESSAGES)
        self.greeting = ""
        """Its standard output before its first report."""
        self.orders, self._reports = Newest(order, descriptor), Newest(report, descriptor, 2 * SLOT)
        program = (
            f"import sys; sys.path[:] = [{_ROOT!r}]; import drivers; sys.path[:] = {sys.path!r}; "
            f"from {module} import main; main(*sys.argv[1:])"
        )
        text = msgspec.json.encode(config).decode()
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, text, str(descriptor)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[descriptor],
            start_new_session=True,  # Ctrl-C is handled by this process
        )
        atexit.register(self.close)
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def report(self) -> Report:
        """Return the newest report; never waits."""
        newest = self._reports.get()
        assert newest is not None, "it was ready"
        return newest[1]

    @property
    def ended(self) -> str:
        """How its process has ended, in words; empty: it runs."""
        status = self._process.poll()
        return "" if status is None else f"its process has ended ({status})"

    @property
    def trouble(self) -> str:
        """Why there are no more reports, as far as known."""
        return self.ended or "the robot is silent"

    def close(self) -> None:
        """Stop the robot and end the process; may be called twice."""
        atexit.unregister(self.close)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_S)

    def _wait_until_ready(self) -> None:
        """Wait for the first report; DriverError: it cannot be set up, with its output."""
        deadline_s = time.monotonic() + self._start_s
        assert self._process.stdout is not None
        while self._reports.get() is None:
            if self._process.poll() is not None:
                output = self._process.stdout.read().decode(errors="replace").strip()
                raise DriverError(f"{self.what}: {output or self.trouble}")
            if time.monotonic() > deadline_s:
                raise DriverError(
                    f"{self.what}: it answers, but gave no state within {self._start_s:g} s; does another "
                    "program have it?"
                )
            time.sleep(0.005)
        os.set_blocking(self._process.stdout.fileno(), False)
        self.greeting = (self._process.stdout.read() or b"").decode()


class LifeLine:
    """Tells a driver's process whether its parent still runs.

    It takes over standard input: code that prompts there gets EOFError.
    """

    def __init__(self) -> None:
        self._parent, self._was_cut = os.getppid(), False
        self._pipe = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.set_blocking(self._pipe, False)

    def cut(self) -> None:
        """End at the next check, as on SIGTERM."""
        self._was_cut = True

    def is_cut(self) -> bool:
        if self._was_cut:
            return True
        try:
            return os.getppid() != self._parent or os.read(self._pipe, 1) == b""
        except BlockingIOError:
            return False
