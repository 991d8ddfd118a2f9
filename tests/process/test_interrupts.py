"""Ctrl-C in a real terminal, and SIGTERM, at any moment of a command: 2 s, one line, nothing left running."""

import os
import pty
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from uuid import uuid4

import pytest

from robot_runtime.cli import signals
from robot_runtime.cli.signals import GRACE_S
from tests.source_tree import ROOT

LONGEST_S = 2.0
"""From the signal to the end."""
COMMAND = (sys.executable, "-m", "robot_runtime.cli")
NOBODY = "tcp://127.0.0.1:9"


class End(NamedTuple):
    """How a command ended."""

    code: int
    seconds: float
    said: str
    left: list[str]
    """What is still running of what it started."""


def ended_after(
    seconds: float, argv: tuple[str, ...], folder: Path, *, number: int = signal.SIGINT, words: str = ""
) -> End:
    """Run in a terminal, and be interrupted so long after the command has taken over its signals, or after
    it has said these words."""
    mark = f"INTERRUPT_TEST={uuid4().hex}"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(argv[0], argv, os.environ | dict([mark.split("=")]))
    said, due_s, sent_s = b"", None, None
    started_s = time.monotonic()
    while True:
        now_s = time.monotonic()
        assert now_s - started_s < 120.0, said
        if due_s is None and _takes_sigterm(pid, argv) and words.encode() in said:
            due_s = now_s + seconds
        if sent_s is None and due_s is not None and now_s >= due_s:
            sent_s = now_s
            os.write(terminal, b"\x03") if number == signal.SIGINT else os.kill(pid, number)
        if select.select([terminal], [], [], 0.002)[0]:
            try:
                said += os.read(terminal, 65536)
            except OSError:  # nobody has it open any more
                break
    _, status = os.waitpid(pid, 0)
    assert sent_s is not None, said
    seconds = time.monotonic() - sent_s
    os.close(terminal)
    return End(os.waitstatus_to_exitcode(status), seconds, said.decode(errors="replace"), _marked(mark))


def _takes_sigterm(pid: int, argv: tuple[str, ...]) -> bool:
    """Python handles SIGINT from its start, but not SIGTERM; who has forked it may."""
    if "\0".join(argv) not in Path(f"/proc/{pid}/cmdline").read_text():
        return False
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def _marked(mark: str) -> list[str]:
    out = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in environ.read_bytes():
                out.append((environ.parent / "cmdline").read_text().replace("\0", " "))
    return out


RUN, EVAL = (
    ("run", "--task", "track"),
    ("eval", "--task", "track", "--control-hz", "100", "--episodes", "5000"),
)
RECORD = ("record", "--task", "track", "--episodes", "500", "--output", "recorded")
TRAIN = ("train", "--task", "track", "--episodes", "4", "--output", "trained")
BENCH = ("-m", "scripts.bench", "loop")
CASES = [
    (RUN, 0.0, 1.0),  # imports
    (RUN, 0.0, 1.0),
    (BENCH, 0.0, 1.0),
    ((*RUN, "--server", NOBODY, "--connect-timeout-s", "600"), 3.0, 5.0),  # waits
    (EVAL, 0.5, 2.0),  # its workers start
    (EVAL, 5.0, 8.0),
    (RECORD, 2.0, 6.0),
    (TRAIN, 2.0, 6.0),
    (("demo",), 2.0, 6.0),  # its server starts
    (("serve", "--policy", "track", "--address", "tcp://127.0.0.1:*"), 0.5, 5.0),
]
"""Commands, and from when to when the moment is drawn [s]."""


@pytest.mark.long
@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: f"{i}-{' '.join(CASES[i][0][:2])}")
def test_ctrl_c_ends_a_command_with_one_line_and_130_and_leaves_nothing(case, tmp_path):
    argv, first_s, last_s = CASES[case]
    moment_s = random.Random(case).uniform(first_s, last_s)
    command = (sys.executable, *argv) if argv[0] == "-m" else (*COMMAND, *argv)
    end = ended_after(moment_s, command, tmp_path)
    assert end.code == 130, end
    assert "Traceback" not in end.said, end.said
    assert end.said.count("interrupted") == 1, end.said
    assert end.said.endswith("interrupted\r\n"), end.said
    assert end.said.rfind("\x1b[?25h") >= end.said.rfind("\x1b[?25l"), "the cursor is hidden"
    assert end.left == []
    assert end.seconds < LONGEST_S


@pytest.mark.parametrize(("argv", "moment_s"), [(RUN, 0.2), (EVAL, 4.0)], ids=["imports", "at work"])
def test_sigterm_ends_a_command_likewise_with_143(argv, moment_s, tmp_path):
    end = ended_after(moment_s, (*COMMAND, *argv), tmp_path, number=signal.SIGTERM)
    assert end.code == 143, end
    assert "Traceback" not in end.said, end.said
    assert end.said.endswith("terminated\r\n"), end.said
    assert end.left == []
    assert end.seconds < LONGEST_S


def test_ctrl_c_ends_a_script_likewise():
    command = (sys.executable, "-m", "scripts.attack.fuzz_sessions", "--deliveries", "100000000")
    end = ended_after(2.0, command, ROOT)
    assert end.code == 130, end
    assert "Traceback" not in end.said, end.said
    assert end.said.endswith("interrupted\r\n"), end.said
    assert end.seconds < LONGEST_S


@pytest.mark.long
def test_a_server_with_torch_in_it_is_gone_within_two_seconds_of_sigterm(tmp_path):
    serve = ("serve", "--policy", "track", "--address", "tcp://127.0.0.1:*")
    end = ended_after(0.5, (*COMMAND, *serve), tmp_path, number=signal.SIGTERM, words="ready:")
    assert "ready:" in end.said
    assert (end.code, end.left) == (0, [])
    assert end.seconds < LONGEST_S


STUBBORN = """
import subprocess, time
from robot_runtime.cli.signals import ShutdownHandler
ShutdownHandler()
subprocess.Popen(["sleep", "600"], start_new_session=True)
while True:
    try:
        time.sleep(600)
    except BaseException:
        pass
"""


def test_a_command_that_does_not_listen_is_ended_all_the_same_and_so_are_its_children(tmp_path):
    end = ended_after(0.3, (sys.executable, "-c", STUBBORN), tmp_path)
    assert (end.code, end.left) == (130, [])
    assert end.said.endswith("interrupted\r\n")
    assert GRACE_S <= end.seconds < LONGEST_S


TALKATIVE = """
import os
from robot_runtime.cli.signals import ShutdownHandler
ending = ShutdownHandler()
try:
    while True:
        os.write(1, b"a line that nobody ever reads..\\n")  # 32 bytes: they fill a pipe to its end
except KeyboardInterrupt as error:
    ending.end(error.number)
"""


def _written(pid: int) -> int:
    """Bytes that a process has written so far."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


@pytest.mark.parametrize("pair", [os.pipe, pty.openpty], ids=["pipe", "terminal"])
def test_a_command_whose_words_nobody_reads_is_ended_all_the_same(pair):
    reader, writer = pair()
    talkative = subprocess.Popen(
        [sys.executable, "-c", TALKATIVE], stdin=subprocess.DEVNULL, stdout=writer, stderr=writer
    )
    try:
        before, now = -1, 0
        while not now == before > 0:  # it goes on
            time.sleep(0.2)
            before, now = now, _written(talkative.pid)
            assert talkative.poll() is None
        sent_s = time.monotonic()
        talkative.send_signal(signal.SIGTERM)
        assert talkative.wait(10.0) == 128 + signal.SIGTERM
        assert time.monotonic() - sent_s < LONGEST_S
    finally:
        talkative.kill()
        talkative.wait()
        os.close(reader)
        os.close(writer)


def test_what_cannot_be_written_after_the_work_is_kept_elsewhere_and_the_place_is_said():
    done = ("eval", "--policy", "expert", "--episodes", "1", "--control-hz", "100", "--workers", "1")
    ended = subprocess.run([*COMMAND, *done, "--json", "/dev/full"], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    *_, place = ended.stderr.split()
    assert '"success"' in Path(place).read_text()
    Path(place).unlink()


def test_the_one_line_is_said_though_the_machine_is_too_busy_to_begin_with_it(monkeypatch):
    def late(write: Callable[[], None], args: tuple[()]) -> None:
        Thread(target=lambda: (time.sleep(3 * signals.SAY_S), write())).start()

    monkeypatch.setattr(signals, "start_new_thread", late)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        signals._say(writing, b"terminated\n")
        assert os.read(reading, 100) == b"terminated\n"
    finally:
        os.close(reading)
        os.close(writing)


def test_no_process_started_by_an_import_hears_ctrl_c():
    # glfw, which mujoco imports, asks a Python for its library's version: it printed a traceback
    program = """
import signal, sys
heard = []
def note(event, args):
    if event == "subprocess.Popen":
        heard.append(signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, []))
sys.addaudithook(note)
import sim, mujoco
print(len(heard), sum(heard))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["1", "0"]
