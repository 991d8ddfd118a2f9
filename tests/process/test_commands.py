"""Commands as processes: what they leave behind, and what they do when their output or their life ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.waiting import wait_until
from tests.source_tree import ROOT

WAIT_S = 60.0


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.long
def test_no_row_that_reaches_a_robot_is_wrong_whatever_the_network_does(tmp_path):
    command = [sys.executable, "-m", "scripts.attack.fuzz_sessions", "--deliveries", "20000", "--seed", "5"]
    subprocess.run(
        [*command, "--json", str(tmp_path / "fuzz.json")], check=True, capture_output=True, cwd=ROOT
    )
    figures = json.loads((tmp_path / "fuzz.json").read_text())
    assert figures["wrong rows"] == 0
    assert figures["answered"] > 300
    assert min(figures[what] for what in ("dropped", "duplicated", "truncated", "restarts")) > 0


@pytest.mark.parametrize(
    "arguments", [["robot_runtime.cli", "--help"], ["scripts.bench", "methods", "--plan"]]
)
@pytest.mark.long
def test_a_command_whose_output_nobody_reads_ends_without_a_traceback(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", *arguments]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(writer)
    assert ended.returncode == 128 + signal.SIGPIPE
    assert ended.stderr == ""


def test_a_terminated_command_ends_its_server():
    command = [sys.executable, "-m", "scripts.bench", "stream", "--n", "100000"]
    bench = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    servers = wait_until(lambda: children(bench.pid))
    os.kill(bench.pid, signal.SIGTERM)
    assert bench.wait(WAIT_S) == 128 + signal.SIGTERM
    assert not any(is_running(server) for server in servers)
