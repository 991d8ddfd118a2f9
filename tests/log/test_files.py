"""A log outlives kills, cuts and full disks; folders are tidied; the ring keeps the last seconds."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robot_runtime.core.journal import Ticked
from robot_runtime.core.orders import EndEpisode, EpisodeMark, Keep, Outcome, TakenOrder
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.config import All, LastSeconds, LogConfig, Nothing, RunInfo, keep_of
from robot_runtime.log.copy import cut_out, recovered
from robot_runtime.log.entries import Fault, Line
from robot_runtime.log.export import export
from robot_runtime.log.folder import new_file, tidy
from robot_runtime.log.foxglove import compressed_image, image_schema, jpeg_of
from robot_runtime.log.publish import Subscription
from robot_runtime.log.reader import RunLog
from robot_runtime.log.reasons import FAULTS
from robot_runtime.log.records import LOST, ChunkReader, scan
from robot_runtime.log.replay import replay_log
from robot_runtime.log.start import start_log
from robot_runtime.log.writer import RunLogWriter
from robot_runtime.page.recorded import Recording
from tests.log.robots import TICK, Life
from tests.source_tree import ROOT

LIFE = Life("one arm", "time-aligned", seed=3)
ENTRIES = LIFE.run(300)
INFO = PolicyInfo(name="tried", action_spec=LIFE.spec)


def log_in(
    folder: Path, *, has_thread: bool = False, said: list[str] | None = None, **options
) -> RunLogWriter:
    return start_log(
        LogConfig(folder=folder, **options), task="try, it!", robot="test", schema=Schema.of(LIFE.spec),
        policy=INFO, control_period_ns=TICK, now_ns=0, is_virtual=not has_thread,
        on_fault=(said if said is not None else []).append,
    )  # fmt: skip


def test_a_page_of_a_recorded_run_begins_where_mode_and_state_are_known(whole):
    recording = Recording(whole)
    state = recording.at(recording.start_s)
    assert state.mode
    assert state.state
    assert recording.start_s < recording.end_s


def test_a_run_without_a_task_has_its_robot_in_the_name_of_its_log(tmp_path):
    for robot, name in (("Left arm", "left_arm"), ("", "run")):
        file = new_file(
            LogConfig(folder=tmp_path / name), replace(log_in(tmp_path).info, task="", robot=robot)
        )
        assert file.path.stem.endswith(f"-{name}")
        file.close({})


def lived(folder: Path, **options) -> RunLog:
    """A log of `ENTRIES`, written in chunks as a slow run's would be."""
    log = log_in(folder, **options)
    for entry in ENTRIES:
        log.note(entry)
    log.close()
    return RunLog.open(log.files[0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> RunLog:
    return lived(tmp_path_factory.mktemp("runs"))


def num_ticks(log: RunLog) -> int:
    return sum(1 for _ in log.ticks())


# ---- cut, killed, full--------------------------------------------------------------------------------


def test_a_log_that_is_cut_anywhere_is_read_up_to_there(tmp_path):
    log = log_in(tmp_path)
    for k in range(8):
        log.line(k, f"line {k}, {'x' * (k % 7)}")
        log.flush()
    log.close()
    path = log.files[0]
    whole = [message.data for message in RunLog.open(path).messages()]
    assert len(whole) == 16  # of the journal, and for people
    seen = []
    for size in range(path.stat().st_size, 7, -1):
        os.truncate(path, size)
        layout = scan(path)
        found = [
            message.data
            for message in ChunkReader(path, layout).messages(layout.chunks)
            if message.topic != LOST
        ]
        assert found == whole[: len(found)]
        assert all(at + lost == size for at, lost in layout.lost.items())
        seen.append(len(found))
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == set(range(0, 17, 2))
    for size in range(7, -1, -1):
        os.truncate(path, size)
        with pytest.raises(InvalidValueError, match="does not begin as an MCAP file does"):
            RunLog.open(path)


def test_a_damaged_byte_costs_the_chunks_from_there_on_and_nothing_before(whole, tmp_path):
    content = bytearray(whole.path.read_bytes())
    ticks = num_ticks(whole)
    for at in range(5_000, len(content), 4_001):
        path = tmp_path / "damaged.mcap"
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        with suppress(InvalidValueError):
            assert 0 <= num_ticks(RunLog.open(path)) <= ticks


WRITES = """
import sys, time
from tests.log.test_files import log_in
from pathlib import Path
log = log_in(Path(sys.argv[1]), has_thread=True)
for k in range(100_000):
    log.line(time.monotonic_ns(), str(k))
    print(k, flush=True)
    time.sleep(0.002)
"""


def test_a_kill_loses_no_more_than_a_quarter_of_a_second(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITES, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    for said in lines:
        if int(said) == 300:
            break
    killed_ns = time.monotonic_ns()
    process.send_signal(signal.SIGKILL)
    process.wait()
    log = RunLog.open(next(tmp_path.iterdir()))
    kept = list(log.lines())
    assert not log.is_finished
    assert [int(line.text) for line in kept] == list(range(len(kept)))
    assert killed_ns - kept[-1].t_ns < 250_000_000


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file of this process can grow beyond 40 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_stops_the_log_with_a_flag_and_nothing_else(tmp_path, small_disk):
    said: list[str] = []
    log = log_in(tmp_path, said=said)
    rng = np.random.default_rng(0)
    for k, entry in enumerate(ENTRIES):
        log.note(entry)
        log.picture("wrist", Image(t_ns=k, pixels=rng.integers(0, 255, (48, 48, 3), np.uint8)))
        log.flush()
    log.close()
    assert said == ["the log of this run stops here, the robot goes on: File too large"]
    assert log.fault == said[0]
    left = RunLog.open(log.files[0])
    assert not left.is_finished
    assert 0 < num_ticks(left) < num_ticks_of(ENTRIES)
    assert replay_log(left).difference is None


def num_ticks_of(entries) -> int:
    return sum(isinstance(entry, Ticked) for entry in entries)


def test_a_folder_that_cannot_be_written_to_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    for keep in (All(), LastSeconds(1.0)):
        with pytest.raises(
            InvalidValueError, match=r"no log can be written to .*; --no-log runs without one"
        ):
            log_in(tmp_path / "file", keep=keep)


# ---- what can be done with one ----------------------------------------------------------------------


def test_a_log_that_was_cut_is_recovered_so_that_other_programs_open_it(whole, tmp_path):
    from mcap.reader import make_reader

    path = tmp_path / "cut.mcap"
    path.write_bytes(whole.path.read_bytes()[: whole.layout.chunks[-1].offset + 50])
    cut = RunLog.open(path)
    assert recovered(cut, tmp_path / "whole.mcap") > 0
    again = RunLog.open(tmp_path / "whole.mcap")
    assert again.is_finished
    assert list(map(str, again.messages())) == list(map(str, cut.messages()))
    with (tmp_path / "whole.mcap").open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        topics = {channel.topic for channel in summary.channels.values()}
        assert {"/journal", "/state", "/command", "/mode", "/chunk"} <= topics
        for schema, channel, message in reader.iter_messages():
            if channel.message_encoding == "json":
                assert json.loads(message.data)
                assert json.loads(schema.data)["type"] == "object"


def test_a_part_is_cut_out_and_replayed_if_it_is_from_the_begin(whole, tmp_path):
    cut_out(whole, tmp_path / "begin.mcap", end_s=1.0)
    begin = RunLog.open(tmp_path / "begin.mcap")
    times_ns = [row.tick.now_ns for row in whole.ticks()]  # the clock goes back now and then
    assert num_ticks(begin) == sum(t_ns < times_ns[0] + 1_000_000_000 for t_ns in times_ns)
    assert replay_log(begin).difference is None
    cut_out(whole, tmp_path / "middle.mcap", start_s=1.0, end_s=2.0)
    middle = RunLog.open(tmp_path / "middle.mcap")
    assert num_ticks(middle) in (99, 100, 101)
    assert middle.configuration.control_period_ns == TICK
    with pytest.raises(InvalidValueError, match="begins in mid-run"):
        replay_log(middle)
    with pytest.raises(InvalidValueError, match="has nothing from 99 s on"):
        cut_out(whole, tmp_path / "nothing.mcap", start_s=99.0)


def test_numbers_are_exported_by_name(whole, tmp_path):
    assert export(whole, tmp_path / "numbers.csv") == 300
    head, first = (tmp_path / "numbers.csv").read_text().splitlines()[:2]
    row = dict(zip(head.split(","), first.split(","), strict=True))
    assert float(row["state.arm.joint_1"]) == LIFE.kind.parts["arm"].q[0]
    assert {"command.gripper.width", "mode", "authority.arm", "t_ns"} <= row.keys()
    export(whole, tmp_path / "numbers.json")
    data = json.loads((tmp_path / "numbers.json").read_text())
    assert data["run"]["task"] == "try, it!"
    assert len(data["ticks"]) == 300
    with pytest.raises(InvalidValueError, match=r"ends in \.csv or \.json"):
        export(whole, tmp_path / "numbers.xlsx")


@pytest.mark.parametrize(("theirs", "age"), [(0, "an older"), (99, "a newer")])
def test_a_log_of_another_format_is_refused_in_a_sentence(whole, theirs, age):
    text = whole.info.to_json().replace('"format": 1', f'"format": {theirs}')
    with pytest.raises(
        InvalidValueError, match=f"of format {theirs}, this version .* reads format 1: .* {age} version"
    ):
        RunInfo.from_json(text)


# ---- folders and rings ----------------------------------------------------------------------


def test_two_recorders_in_one_folder_do_not_meet(tmp_path):
    logs = [log_in(tmp_path) for _ in range(3)]
    assert len({log.files[0] for log in logs}) == 3
    for i, log in enumerate(logs):
        log.line(0, f"of {i}")
        log.close()
    for i, log in enumerate(logs):
        assert [line.text for line in RunLog.open(log.files[0]).lines()] == [f"of {i}"]


def test_old_logs_go_but_no_other_files_and_none_that_is_being_written(tmp_path):
    now_s = time.time()
    logs = [log_in(tmp_path) for _ in range(4)]
    for age_s, log in zip((4000, 3000, 2000, 1000), logs, strict=True):
        if log is not logs[0]:
            log.close()
        os.utime(log.files[0], (now_s - age_s, now_s - age_s))
    other = tmp_path / "20260101-000000-mine.mcap"
    other.write_bytes(b"not ours")
    os.utime(other, (0, 0))
    size = logs[1].files[0].stat().st_size
    assert tidy(LogConfig(folder=tmp_path, max_age_s=2500), now_s=now_s) == logs[1].files
    assert tidy(LogConfig(folder=tmp_path, max_bytes=2 * size), now_s=now_s) == logs[2].files
    logs[0].close()
    assert {path.name for path in tmp_path.iterdir()} == {
        other.name, logs[0].files[0].name, logs[3].files[0].name,
    }  # fmt: skip


def test_a_ring_writes_nothing_while_nothing_happens(tmp_path):
    log = log_in(tmp_path, keep=LastSeconds(0.5))
    for entry in calm_entries():
        log.note(entry)
    log.close()
    assert log.files == []
    assert list(tmp_path.iterdir()) == []


def calm_entries():
    """How it began, and every control step that nothing was wrong with."""
    calm = [entry for entry in ENTRIES if isinstance(entry, Ticked) and entry.tick.cause not in FAULTS]
    return [ENTRIES[0], *calm]


REASONS = [
    TakenOrder(order=Keep(), by="key k", posted_ns=0, done_ns=0),
    EpisodeMark(start_ns=0, end_ns=9, outcome=Outcome.FAILURE),
    Fault(0, "it fell over"),
]


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: type(reason).__name__)
def test_a_ring_writes_the_last_seconds_when_there_is_a_reason(tmp_path, reason):
    entries = calm_entries()
    log = log_in(tmp_path, keep=LastSeconds(0.5))
    for entry in entries[:200]:
        log.note(entry)
        log.flush()
    assert log.files == []
    log.note(reason)
    for entry in entries[200:]:
        log.note(entry)
        log.flush()
    log.close()
    kept = RunLog.open(log.files[0])
    times = [row.tick.now_ns for row in kept.ticks()]
    at_ns = entries[199].tick.now_ns
    assert at_ns - times[0] == pytest.approx(500_000_000, abs=50_000_000)
    assert times[-1] >= min(at_ns + 450_000_000, entries[-1].tick.now_ns)
    assert kept.configuration.seed == 3
    with pytest.raises(InvalidValueError, match="begins in mid-run"):
        replay_log(kept)


def test_refused_orders_and_successes_are_no_reason(tmp_path):
    log = log_in(tmp_path, keep=LastSeconds(0.5))
    log.note(TakenOrder(order=Keep(), by="page", posted_ns=0, done_ns=0, refused="no"))
    log.note(TakenOrder(order=EndEpisode(Outcome.SUCCESS), by="page", posted_ns=0, done_ns=0))
    log.note(EpisodeMark(start_ns=0, end_ns=9, outcome=Outcome.SUCCESS))
    log.close()
    assert log.files == []


@pytest.mark.parametrize(
    "text", ["", "last", "last:", "last:0s", "last:-3s", "last:1e9s", "some", "last:30m"]
)
def test_what_to_keep_is_said_in_one_of_two_ways(text):
    with pytest.raises(InvalidValueError, match=r"last:30s|above 0"):
        keep_of(text)
    assert keep_of("last:2.5s") == LastSeconds(2.5)


# ---- other programs ----------------------------------------------------------------------


def test_a_picture_is_written_as_foxgloves_own_encoder_writes_it():
    """The bytes are those of foxglove-sdk 0.30.3."""
    mine = compressed_image(1764187200 * 10**9 + 5, b"\xff\xd8abc", "chest")
    assert mine == b'\n\x08\x08\xc0\xb8\x9d\xc9\x06\x10\x05\x12\x05\xff\xd8abc\x1a\x04jpeg"\x05chest'
    assert jpeg_of(mine) == b"\xff\xd8abc"
    assert b"CompressedImage" in image_schema()


def test_other_processes_hear_what_is_logged_also_those_that_come_late(tmp_path):
    address = f"ipc://{tmp_path}/run"
    log = log_in(tmp_path, keep=Nothing())
    log.subscribe(address)
    log.note(EpisodeMark(start_ns=0, end_ns=10, outcome=Outcome.SUCCESS))
    log.flush()
    heard = Subscription(address)
    while heard.info is None:  # until its wish has come through
        log.line(5, "hello")
        log.flush()
        messages = {message.topic: message for message in heard.messages(0.02)}
    assert heard.info.task == "try, it!"
    assert "/episode" in messages
    assert json.loads(messages["/log"].data)["message"] == "hello"
    heard.close()
    with pytest.raises(InvalidValueError, match="cannot be listened at"):
        log.subscribe("ipc:///no/such/folder/run")
    log.close()


def test_lines_are_noted_from_any_thread_and_pictures_are_kept_once(tmp_path):
    log = log_in(tmp_path, has_thread=True)
    image = Image(t_ns=7, pixels=np.full((8, 8, 3), 200, np.uint8))
    log.picture("wrist", image)
    log.picture("wrist", image)
    log.note(Line(1, "here", is_routine=False))
    log.close()
    back = RunLog.open(log.files[0])
    assert back.cameras == ("wrist",)
    (picture,) = back.images("wrist")
    assert picture.t_ns == 7
    assert picture.jpeg[:2] == b"\xff\xd8"
    with pytest.raises(InvalidValueError, match="no images of camera 'chest', only of wrist"):
        list(back.images("chest"))
