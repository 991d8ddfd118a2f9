"""A log that is damaged, cut or made by a stranger is read as far as it can be, and every command says so."""

import json
import struct
import zlib
from pathlib import Path

import lz4.frame
import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from calibration.commands.capture.import_ import CaptureImport
from robot_runtime import user_code
from robot_runtime.commands.compare import trials_at
from robot_runtime.commands.log import LogExport, LogInfo, LogRecover
from robot_runtime.commands.read_log import log_of
from robot_runtime.commands.replay import Replay
from robot_runtime.core.journal import Ticked
from robot_runtime.core.orders import Outcome
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.log.config import RunInfo
from robot_runtime.log.copy import recovered
from robot_runtime.log.file import LogFile
from robot_runtime.log.forms import FormError, Forms
from robot_runtime.log.reader import RunLog
from robot_runtime.log.records import LOST, MAX_RECORD, scan
from robot_runtime.log.replay import replay_log
from robot_runtime.log.summary import summary
from tests.examples import examples
from tests.log.test_files import ENTRIES, log_in, num_ticks

HEAD_BYTES = 9


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that failed, in some ten chunks."""
    log = log_in(tmp_path_factory.mktemp("runs"))
    for number, entry in enumerate(ENTRIES):
        log.note(entry)
        if number % 100 == 99:
            log.flush()
    log.close({"success": "False"})
    return log.files[0]


def damaged(whole: Path, tmp_path: Path, at: int, content: bytes = b"") -> Path:
    """With other bytes from there on; with one bit turned if none are given."""
    data = bytearray(whole.read_bytes())
    content = content or bytes([data[at] ^ 1])
    data[at : at + len(content)] = content
    path = tmp_path / "damaged.mcap"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("share", [0.2, 0.43, 0.7])
def test_a_turned_bit_costs_its_own_chunk_alone(whole, tmp_path, share):
    chunks = scan(whole).chunks
    chunk = chunks[int(share * len(chunks))]
    path = damaged(whole, tmp_path, chunk.offset + chunk.length // 2)
    log = RunLog.open(path)
    assert 0 < num_ticks(RunLog.open(whole)) - num_ticks(log) <= 100
    assert log.layout.lost == {chunk.offset: chunk.length}
    assert "is damaged in 1 place" in log.damage
    assert log.is_finished


@pytest.mark.parametrize(
    ("there", "other"), [(b'"is_virtual":', b"x"), (b'"seed":', b"x"), (b"success", b"x"), (b"False", b"T")]
)
def test_a_changed_byte_in_what_a_log_states_of_its_run_is_damage(whole, tmp_path, there, other):
    path = damaged(whole, tmp_path, whole.read_bytes().index(there) + 1, other)
    log = RunLog.open(path)
    assert num_ticks(log) == num_ticks(RunLog.open(whole))
    assert "bytes could not be read" in log.damage
    assert [mark.outcome for mark in log.episodes()] == [Outcome.UNKNOWN]
    recovered(log, tmp_path / "again.mcap")
    again = RunLog.open(tmp_path / "again.mcap")
    assert [mark.outcome for mark in again.episodes()] == [Outcome.UNKNOWN]
    with pytest.raises(RobotRuntimeError, match="bytes could not be read"):
        LogInfo(file=tmp_path / "again.mcap").main()


@pytest.mark.parametrize("length", [0, 1, 5000, 2**32, 2**64 - 1])
def test_reading_goes_on_with_the_next_whole_chunk_behind_a_wrong_length(whole, tmp_path, length):
    chunks = scan(whole).chunks
    path = damaged(whole, tmp_path, chunks[4].offset - 8, struct.pack("<Q", length))
    log = RunLog.open(path)
    ticks = num_ticks(log)
    assert log.layout.chunks == [*chunks[:4], *chunks[5:]]
    assert log.is_finished
    assert log.end == {"success": "False"}
    assert num_ticks(RunLog.open(whole)) - 101 <= ticks < num_ticks(RunLog.open(whole))


def test_a_recovered_log_still_says_what_is_missing(whole, tmp_path):
    chunk = scan(whole).chunks[4]
    log = RunLog.open(damaged(whole, tmp_path, chunk.offset + 60))
    recovered(log, tmp_path / "again.mcap")
    again = RunLog.open(tmp_path / "again.mcap")
    assert num_ticks(again) == num_ticks(log)
    assert "is damaged in 1 place" in again.damage
    assert replay_log(again).ticks == replay_log(log).ticks < num_ticks(log)


def test_the_outcome_of_an_episode_with_a_hole_is_unknown(whole, tmp_path):
    assert [mark.outcome for mark in RunLog.open(whole).episodes()] == [Outcome.FAILURE]
    path = damaged(whole, tmp_path, scan(whole).chunks[4].offset + 60)
    log = RunLog.open(path)
    assert [mark.outcome for mark in log.episodes()] == [Outcome.UNKNOWN]
    assert [mark.outcome for mark in summary(RunLog.open(path)).episodes] == [Outcome.UNKNOWN]
    with pytest.raises(InvalidValueError, match=r"no whole trial to compare: .* is damaged"):
        trials_at(path, [])


@pytest.fixture(params=["damaged", "cut"])
def incomplete(request, whole, tmp_path) -> Path:
    chunk = scan(whole).chunks[4]
    if request.param == "damaged":
        return damaged(whole, tmp_path, chunk.offset + 60)
    path = tmp_path / "damaged.mcap"
    path.write_bytes(whole.read_bytes()[: chunk.offset + 60])
    return path


def test_a_command_does_what_it_can_with_an_incomplete_log_and_fails(incomplete, tmp_path, capsys):
    with pytest.raises(RobotRuntimeError, match="bytes could not be read"):
        LogInfo(file=incomplete).main()
    assert "incomplete" in capsys.readouterr().out
    with pytest.raises(
        RobotRuntimeError, match=r"only the first \d+ control steps .* were replayed"
    ) as refused:
        Replay(file=incomplete).main()
    assert "to the last bit" not in str(refused.value)
    assert "bytes could not be read" in str(refused.value)
    output = tmp_path / "numbers.csv"
    with pytest.raises(RobotRuntimeError, match="bytes could not be read"):
        LogExport(file=incomplete, output=output).main()
    assert len(output.read_text().splitlines()) > 50
    assert LogRecover(file=incomplete, output=tmp_path / "whole.mcap").main() == 0
    assert "bytes could not be read" in capsys.readouterr().out


def test_an_import_of_an_incomplete_log_fails_after_the_capture_is_written(incomplete, tmp_path):
    pose = tmp_path / "pose.json"
    pose.write_text('{"p": [0, 0, 0], "q_wxyz": [1, 0, 0, 0]}')
    chest = f"log:{incomplete},view=wrist,part=base,extrinsic={pose}"
    with pytest.raises(RobotRuntimeError, match="bytes could not be read"):
        CaptureImport(output=tmp_path / "capture", chest=chest).main()
    assert (tmp_path / "capture").is_dir()


# ---- of a stranger -----------------------------------------------------------------------------------------


def chunk_of(kind: str, packed: bytes, size: int, crc: int = 0) -> bytes:
    content = struct.pack("<QQQI", 0, 1, size, crc) + struct.pack("<I", len(kind)) + kind.encode()
    content += struct.pack("<Q", len(packed)) + packed
    return struct.pack("<BQ", 6, len(content)) + content


ZEROS = bytes(100 * 2**20)


@pytest.mark.parametrize(
    ("kind", "packed"),
    [
        ("lz4", lz4.frame.compress(ZEROS)),
        ("zstd", zstandard.compress(ZEROS)),
        ("zstd", b"\x28\xb5\x2f\xfd\xe0" + (2**36).to_bytes(8, "little") + bytes(20)),
    ],
)
@pytest.mark.parametrize("size", [1000, MAX_RECORD, 2**36])
def test_a_chunk_never_opens_to_more_than_it_says_or_may(whole, tmp_path, kind, packed, size):
    data, at = whole.read_bytes(), scan(whole).chunks[1].offset - HEAD_BYTES
    path = tmp_path / "bomb.mcap"
    path.write_bytes(data[:at] + chunk_of(kind, packed, size) + data[at:])
    log = RunLog.open(path)
    assert num_ticks(log) == num_ticks(RunLog.open(whole))
    assert len(log.layout.lost) == 1


def test_a_log_that_opens_to_many_times_its_size_is_refused(whole, tmp_path):
    data, at = whole.read_bytes(), scan(whole).chunks[1].offset - HEAD_BYTES
    fill = struct.pack("<BQ", 4, 12) + struct.pack("<HHIII", 99, 0, 0, 0, 0)[:12]
    fill *= 2**21 // len(fill)
    bomb = chunk_of("zstd", zstandard.compress(fill), len(fill), zlib.crc32(fill))
    path = tmp_path / "bomb.mcap"
    path.write_bytes(data[:at] + bomb * 100 + data[at:])
    with pytest.raises(InvalidValueError, match="opens to at most 100 times its size, got more"):
        list(RunLog.open(path).messages("/camera/none"))


@pytest.mark.parametrize("deep", [40, 900, 100_000])
def test_values_that_are_nested_deeply_are_refused_in_a_sentence(deep):
    for data in (b"\x91" * deep + b"\x01", b"\x81\xa1a" * deep + b"\x01"):
        try:
            Forms().decode(data)
        except FormError as error:
            assert len(str(error)) < 1000  # noqa: PT017


def test_a_field_of_another_type_or_shape_is_refused():
    forms = Forms()
    form = msgspec.msgpack.decode(forms.encode(next(e for e in ENTRIES if isinstance(e, Ticked))))
    for name, value in (("now_ns", "soon"), ("now_ns", 2**63), ("tick", None), ("state", {"": "Foreign"})):
        with pytest.raises(FormError, match=f"the {name} of a Ticked|missing|Foreign"):
            forms.decode(msgspec.msgpack.encode({**form, name: value}))


@pytest.mark.parametrize(
    "change",
    [
        {"control_period_ns": 0}, {"control_period_ns": "10"}, {"task": 7}, {"started_wall_ns": -1},
        {"started_wall_ns": 2**80}, {"made_by": []}, {"schema": None}, {"policy": {"name": []}},
        {"seed": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_log_says_of_its_run_is_checked(whole, change):
    info = msgspec.json.decode(RunLog.open(whole).info.to_json())
    with pytest.raises(InvalidValueError):
        RunInfo.from_json(json.dumps({**info, **change}))


def test_values_that_do_not_fit_together_end_a_command_in_a_sentence(whole, monkeypatch):
    monkeypatch.setattr(user_code, "_packages", set())  # another test may have named this one's package
    monkeypatch.setattr(user_code, "_folders", set())
    with (
        pytest.raises(InvalidValueError, match="values of this log do not fit together: KeyError: 'arm'"),
        log_of(whole),
    ):
        raise KeyError("arm")


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_bytes_are_changed_a_log_is_read_or_refused_in_a_sentence(small, tmp_path, data):
    content = bytearray(small.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(8, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "changed.mcap"
    path.write_bytes(content[: data.draw(st.integers(8, len(content)))])
    try:
        log = RunLog.open(path)
        found = list(log.messages_and_gaps())
        summary(log)
    except InvalidValueError:
        return
    has_gap = any(message.topic == LOST for message in found)
    assert has_gap or not log.layout.lost


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    log = log_in(tmp_path_factory.mktemp("runs"))
    for entry in ENTRIES[:12]:
        log.note(entry)
        log.flush()
    log.close()
    return log.files[0]


def test_a_log_may_have_a_channel_without_a_schema(whole, tmp_path):
    info = RunLog.open(whole).info
    file = LogFile(tmp_path / "new.mcap", info)
    channel = next(RunLog.open(whole).messages("/journal")).channel
    assert channel.schema is None
    file.add("/journal", 5, Forms().encode([]), channel)
    file.close({})
    assert list(RunLog.open(tmp_path / "new.mcap").entries()) == []
