"""Peers that `bench peers` measures: processes with a server of their own."""

import sys
import time
from pathlib import Path

import pytest

from robot_runtime.errors import RobotRuntimeError
from scripts.bench.peers import in_turn, peer_block

WAIT_S = 20.0
PEER = Path(__file__).with_name("peer.py")


def started_by(script: Path) -> list[Path]:
    """/proc entries of what processes of that script have started."""
    out = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = process.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            if str(script) in Path(f"/proc/{parent}/cmdline").read_text():
                out.append(process)
        except OSError:
            continue  # it has ended meanwhile
    return out


def test_a_peer_makes_as_many_round_trips_as_asked_and_its_server_ends_with_it():
    with peer_block(Path(sys.executable), PEER, 1, 2.0) as block:
        assert [time_ns for time_ns, _ in block(3, is_paced=False)] == [1, 1, 1]
        assert len(block(2, is_paced=True)) == 2
        servers = started_by(PEER)
        assert servers
    deadline_s = time.monotonic() + WAIT_S
    while any(server.exists() for server in servers):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_processes_in_turn_are_all_asked_and_each_has_an_environment_of_its_own_size(tmp_path):
    script = tmp_path / "peer.py"
    script.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    print(json.dumps([len(os.environ['PADDING'])] * int(line.split()[0])), flush=True)\n"
    )
    with (
        peer_block(Path(sys.executable), script) as one,
        peer_block(Path(sys.executable), script, padding=1000) as other,
    ):
        block = in_turn([one, other])
        sizes = [[size for size, _ in block(n, is_paced=False)] for n in (1, 2, 3)]
    assert sizes == [[0], [1000, 1000], [0, 0, 0]]


def test_a_peer_that_cannot_start_says_why(tmp_path):
    script = tmp_path / "peer.py"
    script.write_text("import openpi_client_of_another_python\n")
    with (
        peer_block(Path(sys.executable), script) as block,
        pytest.raises(RobotRuntimeError, match="No module named 'openpi_client_of_another_python'"),
    ):
        block(1, is_paced=False)
