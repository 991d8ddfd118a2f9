"""A person's demonstrations: what she keeps is a dataset, what she discards is in the log alone."""

import time

import pytest

from robot_runtime.commands import teleop
from robot_runtime.commands.teleop import Teleop
from robot_runtime.commands.teleop_keys import OrderKeys
from robot_runtime.core.orders import BeginEpisode, EndEpisode, Outcome
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.reader import RunLog
from tests.process.pedal import Pedal
from tests.process.waiting import wait_until
from tests.source_tree import ROOT

SCRIPT = """
import time
import numpy as np
from robot_runtime.core.orders import BeginEpisode, EndEpisode, Outcome
from robot_runtime.core.teleop import Lead, TwistLead

KEPT, GONE = EndEpisode(Outcome.SUCCESS), EndEpisode(Outcome.OPERATOR_ABORT, keep=False)

class Hand:
    # three episodes, of which the second is discarded
    def open(self, parts):
        self.todo = [(0.2, BeginEpisode()), (0.7, KEPT), (0.8, BeginEpisode()), (1.0, GONE),
                     (1.1, BeginEpisode()), (1.5, KEPT)]
        self.begun_s = time.monotonic()
    def read(self):
        now_s, orders = time.monotonic() - self.begun_s, []
        while self.todo and self.todo[0][0] <= now_s:
            orders.append(self.todo.pop(0)[1])
        up = TwistLead(v=np.array([0.0, 0.0, 0.05]))
        return Lead(t_ns=time.monotonic_ns(), parts={"arm": up}, engaged={"arm": True}, orders=tuple(orders))
    def close(self):
        pass
"""


def record(folder, **options):
    (folder / "hand.py").write_text(SCRIPT)
    return Teleop(
        device=f"{folder / 'hand.py'}:Hand",
        robot=str(ROOT / "examples/teleop.toml"),
        task="wave",
        yes=True,
        output=folder / "dataset",
        log=folder / "runs",
        **options,
    ).main()


class HandedOver:
    """What would be exported; how is tests/dataset/test_from_log.py's."""

    num_left_out, fault, is_busy = 0, "", False
    added: tuple = ()

    def __init__(self, folder, *, fps, cameras, say):
        type(self).added = ()

    def add(self, log, end_ns):
        type(self).added = (*self.added, (log, end_ns))

    def look(self):
        pass

    def finish(self):
        pass


def test_what_she_keeps_is_handed_over_for_the_dataset_and_what_she_discards_is_in_the_log_alone(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(teleop, "Exporter", HandedOver)
    assert record(tmp_path, episodes=2) == 0
    (log,) = (tmp_path / "runs").glob("*.mcap")
    marks = RunLog.open(log).episodes()
    assert [mark.keep for mark in marks] == [True, False, True]
    assert HandedOver.added == ((log, marks[0].end_ns), (log, marks[2].end_ns))
    said = capsys.readouterr().out
    assert "kept, success; 1 of 2" in said
    assert "discarded; 1 of 2" in said


def test_a_policy_that_is_no_server_is_refused(tmp_path):
    with pytest.raises(InvalidValueError, match="tcp://"):
        Teleop(device="keyboard", output=tmp_path / "new", policy="fetch-seeing").main()


def test_a_pedal_begins_and_keeps_by_turns(tmp_path):
    given, pedal = [], Pedal(tmp_path)

    def until(count):
        wait_until(lambda: len(given) >= count)

    keys = OrderKeys(lambda order, by: given.append((order, by)), reads_terminal=False, pedal=pedal.switch())
    with keys:
        for count in (1, 2, 3):
            pedal.press()
            until(count)
            pedal.let_go()
            time.sleep(0.05)
        keys.ended()
        pedal.press()
        until(4)
    orders = [order for order, _ in given]
    assert orders == [BeginEpisode(), EndEpisode(Outcome.SUCCESS), BeginEpisode(), BeginEpisode()]
    pedal.unplug()
