"""Connections that never speak: whoever does is answered all the same."""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from policies.scripted import FRANKA
from robot_runtime.robot.client import PolicyClient
from robot_runtime.transport.sockets import HANDSHAKE_MS
from robot_runtime.wire.messages import Welcome
from tests.process.waiting import free_port

NUM_SILENT, NUM_BEFORE, WAIT_S = 1000, 1024, 60.0


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 4 * NUM_SILENT:
        pytest.skip(f"only {before[1]} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.long
def test_a_thousand_connections_that_never_speak_are_let_go_and_keep_nobody_out(
    tmp_path: Path, many_descriptors
):
    facts, openpi, groot = tmp_path / "facts.json", free_port(), free_port()
    names = tmp_path / "names.json"
    names.write_text('{"convention": "si"}')
    command = [sys.executable, "-m", "robot_runtime.cli", "serve", "--policy", "hold"]
    command += ["--address", "tcp://127.0.0.1:*", "--json", str(facts)]
    command += ["--openpi", f"127.0.0.1:{openpi}", "--groot", f"127.0.0.1:{groot}", "--names", str(names)]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def as_most_shells_have_it() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (NUM_BEFORE, hard))

    with (
        subprocess.Popen(command, preexec_fn=as_most_shells_have_it, stdout=subprocess.DEVNULL) as server,
        ExitStack() as stack,
    ):
        stack.callback(server.kill)
        deadline_s = time.monotonic() + WAIT_S
        while not facts.exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        descriptors = Path(f"/proc/{server.pid}/fd")
        address = json.loads(facts.read_text())["address"]
        early = stack.enter_context(PolicyClient(address, schema=FRANKA))
        early.wait_until_ready(WAIT_S)
        used = len(os.listdir(descriptors))
        server_port = int(address.rpartition(":")[2])
        for port, number in ((server_port, NUM_SILENT), (openpi, NUM_SILENT // 3), (groot, NUM_SILENT // 3)):
            for _ in range(number):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S))
            with PolicyClient(address, schema=FRANKA) as late:
                late.wait_until_ready(WAIT_S)
        assert all(isinstance(event, Welcome) for event in early.events())
        deadline_s = time.monotonic() + WAIT_S + HANDSHAKE_MS / 1e3
        while len(os.listdir(descriptors)) > used + 10:
            assert time.monotonic() < deadline_s, f"{len(os.listdir(descriptors))} descriptors, {used} before"
            time.sleep(0.1)
