"""A collector's own files, two MP4s with tables of poses and widths, are imported; each fault is named."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from calibration.capture import board_seen
from calibration.capture.check import check_capture
from calibration.capture.raw import RawCapture
from calibration.trajectory import Trajectory
from robot_runtime.cli import main
from sim.capture.takes import Recording
from tests.calibration import collector
from tests.calibration.collector import Fault, S, command, folder_of, session

MOVED = pin.SE3(np.eye(3), np.array([0.05, 0.0, 0.0]))


@pytest.fixture(scope="module")
def recording() -> Recording:
    return session(syncs=False)


@pytest.fixture(scope="module", autouse=True)
def one_clock() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(collector.T0, "hand", collector.T0["chest"])
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory, recording) -> Path:
    return folder_of(tmp_path_factory.mktemp("collector"), recording)


@pytest.fixture(scope="module", autouse=True)
def detected_once() -> Iterator[None]:
    """The board is looked for once in each different image: most faults leave the videos as they are."""
    found: dict[bytes, object] = {}
    search = board_seen.detect

    def detect(board, rgb):
        key = rgb.tobytes()
        if key not in found:
            found[key] = search(board, rgb)
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(board_seen, "detect", detect)
        yield


def names(folder: Path, output: Path, *, widths: bool = True) -> set[str]:
    main(command(folder, output, "--shared-clock", widths=widths))
    report = check_capture(RawCapture.open(output))
    return {*report.verdict.names, *(name for each in report.demonstrations for name in each.verdict.names)}


def with_fault(
    folder: Path, good: Path, recording: Recording, fault: Fault, monkeypatch, *, films: bool = False
) -> Path:
    """The same files with a fault; films: the videos differ, too."""
    if not films:
        monkeypatch.setattr(
            collector, "film", lambda path, *_: path.write_bytes((good / path.name).read_bytes())
        )
    return folder_of(folder, recording, fault)


def rows(change) -> Fault:
    return Fault(rows={"hand": lambda rows: [{**row, **change(row)} for row in rows]})


def scaled(scale: float) -> Fault:
    def poses(path: Trajectory, spans: np.ndarray) -> Trajectory:
        return Trajectory(t_ns=path.t_ns, p=scale * path.p, q=path.q, tracking=path.tracking)

    return Fault(poses={"hand": poses})


def jumped(share: float, clip: int) -> Fault:
    """By 60 mm, at a share of a take."""

    def poses(path: Trajectory, spans: np.ndarray) -> Trajectory:
        at = spans[clip, 0] + share * (spans[clip, 1] - spans[clip, 0])
        p = path.p + np.where(path.t_ns[:, None] >= at, [0.06, 0.0, 0.0], 0.0)
        return Trajectory(t_ns=path.t_ns, p=p, q=path.q, tracking=path.tracking)

    return Fault(poses={"hand": poses})


FAULTS = {
    "millimetres": rows(lambda row: {name: 1000 * row[name] for name in "xyz"}),
    "quaternion-order": rows(
        lambda row: {"qw": row["qx"], "qx": row["qy"], "qy": row["qz"], "qz": row["qw"]}
    ),
    "left-handed": rows(lambda row: {"y": -row["y"], "qx": -row["qx"], "qz": -row["qz"]}),
    "odometry-scale": scaled(0.94),
    "pose-jump": jumped(0.5, 1),
    "odometry-jump": jumped(0.5, 0),
    "pictures-off-poses": Fault(stamps={"hand": lambda t_ns: t_ns + S // 25}),
}  # fmt: skip


@pytest.mark.long
def test_a_collector_s_files_are_imported_with_nothing_against_them(folder, tmp_path):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert names(folder, tmp_path / "out") <= {"no-lean"}
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_collector_s_poses_is_named(folder, recording, tmp_path, monkeypatch, name):
    files = with_fault(tmp_path / "files", folder, recording, FAULTS[name], monkeypatch)
    assert name in names(files, tmp_path / "out")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "board"),
    [
        ("board-moved", lambda role, t_ns, X_WB: MOVED * X_WB if t_ns > 15 * S else X_WB),
        ("board-not-seen", lambda role, t_ns, X_WB: None if role == "hand" else X_WB),
    ],
    ids=["moved", "never seen"],
)
def test_a_board_that_is_moved_or_never_seen_is_named(folder, recording, tmp_path, monkeypatch, name, board):
    files = with_fault(tmp_path / "files", folder, recording, Fault(board=board), monkeypatch, films=True)
    assert name in names(files, tmp_path / "out")


@pytest.mark.long
def test_a_gripper_without_widths_is_named_and_its_demonstrations_are_kept(folder, tmp_path):
    assert names(folder, tmp_path / "out", widths=False) == {"no-lean", "no-width"}


@pytest.mark.long
def test_marks_outside_of_the_recording_are_refused_and_nothing_is_left_behind(folder, tmp_path, capsys):
    marks = tmp_path / "marks.csv"
    marks.write_text((folder / "marks.csv").read_text() + "demonstration,300,310\n")
    line = [*command(folder, tmp_path / "out"), "--marks", str(marks)]
    line = [
        each for i, each in enumerate(line) if i not in (line.index("--marks"), line.index("--marks") + 1)
    ]
    assert main(line) == 1
    assert "lies outside of the chest's recording" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "out").exists()
