"""A gateway as `serve` runs it: in a process of its own, which ends with it and comes back by itself."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from echo import ECHO, SPEC, echo_server
from test_openpi import DROID, ask, shown

from robot_runtime.errors import InvalidValueError
from robot_runtime.server.gateways.openpi import pack
from robot_runtime.server.gateways.process import MAX_MEMORY, GatewayProcess, Settings
from tests.process.waiting import free_port, wait_until

TOKEN = "open sesame"


def settings(server: str, **changes) -> Settings:
    common = {"kind": "openpi", "address": "127.0.0.1:0", "names": DROID, "token": TOKEN}
    return Settings(server=server, policies=[ECHO.to_dict()], **(common | changes))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with echo_server() as address:
        yield address


def is_answered(address: str) -> bool:
    try:
        return ask(f"ws://{address}", pack(shown()))["actions"].shape == (SPEC.horizon, SPEC.dim)
    except OSError:
        return False


@pytest.mark.long
def test_it_answers_and_comes_back_at_the_same_address_after_it_was_killed(server: str):
    with GatewayProcess(settings(server)) as gateway:
        assert is_answered(gateway.address)
        killed = gateway._process
        os.kill(killed.pid, signal.SIGKILL)
        wait_until(lambda: gateway._process is not killed and is_answered(gateway.address))


def test_it_has_bounded_memory_and_gives_way_to_others(server: str):
    with GatewayProcess(settings(server)) as gateway:
        limits = Path(f"/proc/{gateway._process.pid}/limits").read_text()
        data = next(line for line in limits.splitlines() if line.startswith("Max data size"))
        assert int(data.split()[3]) <= MAX_MEMORY
        assert os.getpriority(os.PRIO_PROCESS, gateway._process.pid) > os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.parametrize("kind", ["openpi", "lerobot", "groot"])
def test_it_ends_within_two_seconds_and_with_the_server_that_was_killed(server: str, kind: str):
    address = "127.0.0.1:*" if kind == "groot" else "127.0.0.1:0"
    gateway = GatewayProcess(settings(server, kind=kind, address=address))
    process = gateway._process
    start_s = time.monotonic()
    gateway.close()
    assert time.monotonic() - start_s < 2.0
    assert process.poll() is not None


def test_a_signal_to_all_processes_is_for_the_server_alone_which_goes_on_through_it(server: str, caplog):
    with GatewayProcess(settings(server)) as gateway:
        process = gateway._process
        assert os.getpgid(process.pid) != os.getpgid(0)  # as a terminal sends it
        for number in (signal.SIGTERM, signal.SIGINT):  # as a service manager does
            os.kill(process.pid, number)
        assert is_answered(gateway.address)
        assert process.poll() is None
    assert process.poll() == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.long
def test_serve_that_is_stopped_with_all_its_processes_ends_its_gateways_and_calls_it_no_fault(tmp_path: Path):
    ready, names = tmp_path / "ready.json", tmp_path / "names.json"
    names.write_text('{"convention": "si"}')
    command = [sys.executable, "-m", "robot_runtime.cli", "serve", "--policy", "hold", "--names", str(names)]
    command += ["--address", "tcp://127.0.0.1:*", "--json", str(ready)]
    command += ["--openpi", "127.0.0.1:0", "--groot", "127.0.0.1:*"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as serve:
        wait_until(ready.exists, 60.0)
        gateways = Path(f"/proc/{serve.pid}/task/{serve.pid}/children").read_text().split()
        for pid in (*gateways, serve.pid):
            os.kill(int(pid), signal.SIGTERM)
        said, _ = serve.communicate(timeout=20.0)
    assert len(gateways) == 2
    assert serve.returncode == 0
    assert "ended" not in said, said
    assert "ERROR" not in said, said


def test_it_ends_when_nobody_is_at_the_other_end_of_its_pipe(server: str):
    gateway = GatewayProcess(settings(server))
    gateway._is_closing.set()
    gateway._process.stdin.close()  # as the kernel does for a server that is killed
    assert gateway._process.wait(5.0) == 0


@pytest.mark.long
def test_what_is_wrong_with_its_settings_is_said_in_the_gateways_words(server: str):
    with pytest.raises(InvalidValueError, match="expected HOST:PORT"):
        GatewayProcess(settings(server, address="127.0.0.1:no"))
    with pytest.raises(InvalidValueError, match="can be reached from other machines"):
        GatewayProcess(settings(server, kind="lerobot", address="0.0.0.0:0"))


# ---- a server that is started anew ---------------------------------------------------------------------


class Serve:
    """`serve` of the echo policy with a gateway, in processes as they are for a user."""

    def __init__(self, folder: Path, port: int, kind: str) -> None:
        self.command = [sys.executable, str(Path(__file__).with_name("serve_echo.py"))]
        self.command += [str(folder), str(port), kind]
        self.folder = folder
        self.start()

    def start(self) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        self.process = subprocess.Popen(self.command)
        wait_until(ready.exists, 60.0)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        start_s = time.monotonic()
        self.process.wait(20.0)
        assert time.monotonic() - start_s < 2.5


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], tuple[Serve, int]]]:
    started: list[Serve] = []

    def start(kind: str) -> tuple[Serve, int]:
        port = free_port()
        started.append(Serve(tmp_path, port, kind))
        return started[-1], port

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


@pytest.mark.long
def test_lerobots_client_goes_on_after_the_server_was_started_anew(serve, tmp_path: Path):
    pytest.importorskip("lerobot", reason="whose client it is")
    server, port = serve("lerobot")
    script = Path(__file__).with_name("stock_lerobot.py")
    client = subprocess.Popen(
        [sys.executable, str(script), f"127.0.0.1:{port}", "0.5", "100000", str(tmp_path / "actions")],
        stdout=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    try:
        count = tmp_path / "actions"
        wait_until(lambda: count.exists() and int(count.read_text() or 0) > 10, 180.0)  # it loads torch first
        server.stop()
        before = int(count.read_text())
        server.start()
        wait_until(lambda: int(count.read_text() or 0) > before + 60, 60.0)
    finally:
        client.kill()
        client.wait()


@pytest.mark.long
def test_openpis_client_is_answered_again_after_the_server_was_started_anew(
    serve, stock_python: Path, tmp_path: Path
):
    """A connection that is lost is an error there; a client that is made anew is answered."""
    server, port = serve("openpi")
    np.savez(tmp_path / "shown.npz", **shown())
    script = Path(__file__).with_name("stock_openpi.py")
    run = [str(stock_python), str(script), f"ws://127.0.0.1:{port}", TOKEN, str(tmp_path / "shown.npz")]
    for _ in range(2):
        said = subprocess.run(run, check=True, capture_output=True, cwd=tmp_path).stdout
        assert len(json.loads(said)["answers"]) == 2
        server.stop()
        assert not is_answered(f"127.0.0.1:{port}")
        server.start()


@pytest.mark.long
def test_groots_client_connects_again_by_itself(serve):
    from test_groot import Client
    from test_groot import shown as groot_shown

    server, port = serve("groot")
    client = Client(f"127.0.0.1:{port}")
    action, _ = client.act(groot_shown(0.5))
    server.stop()
    server.start()
    again, _ = client.act(groot_shown(0.25))  # its socket has found the new server
    client.close()
    assert np.allclose(action["joint_position"][0, :, 0], 0.5)
    assert np.allclose(again["joint_position"][0, :, 0], 0.25)
    assert json.loads((server.folder / "ready.json").read_text())["policies"] == ["echo"]
