"""What goes wrong with a log stops the log, is said, and nothing else comes of it."""

import logging
import threading
import time

import numpy as np
import pytest

from robot_runtime.core.journal import Ticked
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError
from robot_runtime.log import writer
from robot_runtime.log.config import LogConfig
from robot_runtime.log.reader import RunLog
from robot_runtime.log.ring import Nowhere
from robot_runtime.log.start import start_log
from robot_runtime.log.summary import summary
from tests.dataset.runs import MS, SCHEMA, SPEC, START_NS, state_at, tick_at, write_run


def log_in(folder, said, *, is_virtual=True):
    return start_log(
        LogConfig(folder=folder),
        task="wave",
        robot="toy",
        schema=SCHEMA,
        policy=PolicyInfo(name="pi-toy", action_spec=SPEC),
        control_period_ns=10 * MS,
        now_ns=START_NS,
        is_virtual=is_virtual,
        on_fault=said.append,
    )


def note_ticks(log, count):
    for k in range(count):
        t_ns = START_NS + k * 10 * MS
        log.note(Ticked(state_at(t_ns), t_ns, tick_at(t_ns)))


class Hangs(Nowhere):
    """A disk that does not answer until it is let go."""

    def __init__(self):
        super().__init__()
        self.is_let_go, self.is_reached = threading.Event(), threading.Event()

    def flush(self):
        self.is_reached.set()
        self.is_let_go.wait(20.0)


@pytest.fixture
def hanging(tmp_path):
    said, sink = [], Hangs()
    info = log_in(tmp_path, []).info
    log = writer.RunLogWriter(info, sink, on_fault=said.append)
    assert sink.is_reached.wait(5.0)
    yield log, said
    sink.is_let_go.set()


def test_a_file_that_somebody_removes_while_it_is_written_is_missed(tmp_path):
    said = []
    log = log_in(tmp_path, said)
    log.files[0].unlink()
    note_ticks(log, 3)
    log.flush()
    assert said[0].startswith("the log of this run stops here, the robot goes on: ")
    assert said[0].endswith(" was removed while it was written")
    log.close()
    assert len(said) == 1


def test_a_disk_that_hangs_keeps_no_run_from_ending(hanging, monkeypatch):
    monkeypatch.setattr(writer, "PATIENCE_S", 0.1)
    log, said = hanging
    note_ticks(log, 3)
    begun_s = time.monotonic()
    log.close()
    assert time.monotonic() - begun_s < 2.0
    assert "the disk has not answered" in said[0]


def test_a_disk_that_hangs_is_said_while_it_hangs_and_fills_no_memory(hanging, monkeypatch):
    monkeypatch.setattr(writer, "MAX_WAITING", 100)
    monkeypatch.setattr(writer, "PATIENCE_S", 0.1)
    log, said = hanging
    for _ in range(3):
        note_ticks(log, 101)
        log.wake()
    assert len(said) == 1
    assert "could not keep up" in said[0]
    assert len(log._entries) == 0


@pytest.mark.parametrize("is_virtual", [True, False])
def test_a_picture_that_cannot_be_encoded_is_left_out_and_the_next_is_not(tmp_path, is_virtual):
    said = []
    log = log_in(tmp_path, said, is_virtual=is_virtual)
    log.picture("wrist", Image(t_ns=START_NS, pixels=np.zeros((0, 64, 3), np.uint8)))
    note_ticks(log, 3)
    log.picture("wrist", Image(t_ns=START_NS + MS, pixels=np.zeros((48, 64, 3), np.uint8)))
    log.close()
    assert said == []
    read = RunLog.open(log.files[0])
    assert [each.t_ns for each in read.images("wrist")] == [START_NS + MS]
    assert any("the log left out 1 images so far: wrist, (0, 64, 3)" in line.text for line in read.lines())


def test_a_log_that_is_damaged_in_its_middle_says_so_wherever_it_is_read(tmp_path, caplog):
    path = write_run(tmp_path, seconds=3.0, camera_hz=1.0)
    chunks = RunLog.open(path).layout.chunks
    content = bytearray(path.read_bytes())
    content[chunks[-1].offset + chunks[-1].length // 2] ^= 1
    path.write_bytes(content)
    log = RunLog.open(path)
    with caplog.at_level(logging.WARNING):
        assert summary(log).ticks < 300
    (said,) = [each.getMessage() for each in caplog.records]
    assert "is damaged: reading resumes behind the damage" in said
    assert log.layout.lost == {chunks[-1].offset: chunks[-1].length}
    assert f"{chunks[-1].length} of {len(content)} bytes could not be read" in log.damage
    with pytest.raises(InvalidValueError, match="is damaged"):
        log.refuse_damage()
