"""`bench gpu --serve`: a small VLA in a server's process, asked there and over the wire."""

import json

import pytest

pytest.importorskip("lerobot", reason="whose policies they are")
pytest.importorskip("transformers", reason="SmolVLA and pi need it")

from scripts.bench.gpu import BenchGpu
from scripts.bench.gpu_served import Trip, figures_of

pytestmark = pytest.mark.real_time
N, CONNECTIONS = 4, 10
SPARE_MB = 32.0
"""What malloc may keep of robots that are gone; a server that kept their pictures would keep more."""


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    figures = tmp_path_factory.mktemp("served") / "served.json"
    bench = BenchGpu(
        models=("pi05",), small=True, device="cpu", compile=False, cameras=(2,), batches=(1, 2), n=N,
        serve=True, starts=True, connections=CONNECTIONS, json=figures,
    )  # fmt: skip
    assert bench.main() == 0
    return json.loads(figures.read_text())


@pytest.mark.long
def test_both_ways_are_measured_in_one_run_and_the_difference_is_said(found):
    (served,) = found["served"]
    assert found["rows"] == found["chunks"] == []
    assert (served["model"], served["cameras"], served["n"]) == ("pi05", 2, N)
    for way in ("bare", "served"):
        assert 0.0 < served[way]["first_row"]["p50"] < served[way]["last_row"]["p50"]
    for row in ("first_row", "last_row"):
        on_top = served["served"][row]["p50"] - served["bare"][row]["p50"]
        assert served["on_top_ms"][row] == pytest.approx(on_top)


@pytest.mark.long
def test_both_starts_say_when_the_server_was_open_and_when_all_was_warm(found):
    (served,) = found["served"]
    assert served["max_batch"] == 2
    for start in served["starts"]:
        assert 0.0 < start["open_s"] < start["all_warm_s"]
    assert len(served["starts"]) == 2


@pytest.mark.long
def test_what_the_server_says_of_an_answer_is_part_of_what_the_robot_waited_for(found):
    (served,) = found["served"]
    parts = {name: of["p50"] for name, of in served["parts"].items()}
    assert all(part > 0.0 for part in parts.values())
    assert sum(parts.values()) == pytest.approx(served["served"]["last_row"]["p50"], rel=0.5)
    assert parts["policy"] == max(parts.values())


@pytest.mark.long
def test_a_server_holds_after_robots_that_came_and_left_what_it_held_before(found):
    (served,) = found["served"]
    held = served["connections"]
    assert held["n"] == CONNECTIONS
    before, after = held["before"], held["after"]
    assert before["robots"] == after["robots"] == 0
    assert after["threads"] == before["threads"]
    assert after["files"] == before["files"]
    assert after["memory_mb"] < before["memory_mb"] + SPARE_MB


def test_parts_of_every_answer_add_up_to_the_whole_of_it():
    served = [
        Trip(first_row=4_000_000, last_row=9_000_000 + 1_000_000 * i, waited=1_000_000, policy=6_000_000)
        for i in range(5)
    ]
    bare = [Trip(first_row=3_000_000, last_row=6_500_000)] * 5
    found = figures_of(bare, served)
    assert found["parts"]["server_and_wire"] == {
        "p50": 4.0,
        "p95": pytest.approx(5.8),
        "p99": pytest.approx(5.96),
    }
    assert found["on_top_ms"] == {"first_row": 1.0, "last_row": 4.5}
    assert found["served"]["last_row"]["p50"] == sum(part["p50"] for part in found["parts"].values())
