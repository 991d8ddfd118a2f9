"""`bench faults`: rows injected a few times, and what it takes for one to hold."""

import socket
import threading

import pytest

from scripts.bench.commands import main
from scripts.bench.faults.proxy import FaultProxy
from scripts.bench.faults.rows import ROWS
from scripts.bench.faults.table import Injection, fault

BY_NUMBER = {row.number: row for row in ROWS}
LATE = {"late [ms]": 2.0}


def row(inject, **facts):
    facts = {"figures": LATE, **facts}
    return fault(1, "x", how="x", behaviour="x", **facts)(inject)


def word(*injections, **facts):
    return row(lambda times: iter(injections), **facts).run(3).word


def test_a_row_holds_if_the_worst_of_every_figure_is_within_its_limit_and_nothing_surprises():
    good = Injection(figures={"late": 1.0})
    assert word(good, Injection(figures={"late": 2.0})) == "held"
    assert word(good, Injection(figures={"late": 2.1})) == "missed"
    assert word(good, Injection(figures={"late": float("nan")})) == "missed"
    assert word(good, Injection(surprises=("it flew",))) == "missed"
    assert word(good, figures=LATE | {"never measured": None}) == "missed"


def test_an_error_in_mid_row_is_a_surprise_and_a_row_that_cannot_run_is_not_held():
    def fails(times):
        yield Injection(figures={"late": 1.0})
        raise RuntimeError("mine")

    verdict = row(fails).run(3)
    assert verdict.word == "missed"
    assert verdict.surprises == ("after 1 runs: RuntimeError: mine",)
    assert row(fails, missing=lambda: "no arm").run(3).to_plain()["verdict"] == "not run"


def test_every_fault_of_the_table_has_one_row():
    assert [fault.number for fault in ROWS] == list(range(1, 20))


def test_a_row_that_there_is_not_is_named(capsys):
    assert main(["faults", "--rows", "77"]) == 1
    assert "--rows takes a number from 1 to 19" in capsys.readouterr().err


def test_a_proxy_stalls_goes_deaf_corrupts_and_cuts():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with FaultProxy(address) as proxy:
            host, port = proxy.address.removeprefix("tcp://").split(":")
            near = socket.create_connection((host, int(port)), 5.0)
            far, _ = server.accept()
            near.sendall(b"one")
            assert far.recv(9) == b"one"
            proxy.stall()
            near.sendall(b"two")
            threading.Timer(0.1, proxy.open).start()
            assert far.recv(9) == b"two"
            proxy.corrupt_share = 1.0
            far.sendall(b"three")
            assert near.recv(9) not in (b"three", b"")
            assert proxy.num_corrupt == 5
            proxy.cut()
            assert near.recv(9) == b""


@pytest.mark.real_time
@pytest.mark.parametrize(("number", "times"), [(1, 2), (7, 6), (10, 3), (11, 1), (12, 4), (13, 2), (16, 2)])
@pytest.mark.long
def test_a_fault_that_is_judged_by_times_ends_as_its_row_says(number, times):
    """Its figures are for `bench faults` on a machine that is not busy."""
    verdict = BY_NUMBER[number].run(times)
    assert verdict.injections
    assert not verdict.surprises


@pytest.mark.real_time
@pytest.mark.parametrize(("number", "times"), [(4, 1), (5, 10), (6, 5), (17, 2), (18, 1), (19, 9)])
def test_a_fault_that_is_judged_by_answers_is_held(number, times):
    verdict = BY_NUMBER[number].run(times)
    assert verdict.word == "held", verdict.to_plain()
