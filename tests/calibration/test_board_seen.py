"""What anchor clips show of a board is told before an anchor is solved, in videos too."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.board import Board
from calibration.camera import Pinhole
from calibration.capture.board_seen import board_seen, worlds_joined
from calibration.capture.check import check_capture
from calibration.capture.raw import RawCapture
from calibration.labels.anchors import anchors_of
from calibration.labels.label import clock_of, label_capture
from calibration.labels.values import LabelConfig
from robot_runtime.cli import main
from sim.capture import faults as fault
from sim.capture.board_scene import draw_board
from sim.capture.cameras import Camera
from sim.capture.drills import anchor_take, walk_take
from sim.capture.rig import CLEAN, RigConfig
from sim.capture.scene import BOARD
from sim.capture.session import simulate_session
from sim.capture.truth import Truth, anchor_error

SMALL = Camera(lens=Pinhole(size=(240, 320), fx=260.0, fy=260.0, cx=159.5, cy=119.5), rate_hz=10.0)


def recorded(folder: Path, *faults: fault.Fault, frontal: bool = False, **others) -> RawCapture:
    """One look at the board by both devices, on one clock."""
    takes = [anchor_take(np.random.default_rng(0), stations=4, frontal=frontal)]
    config = RigConfig(noise=CLEAN, seed=3, faults=faults, glimpses=False, tags=False, imu=False)
    simulate_session(takes, config, folder, **others)
    return RawCapture.open(folder / "capture")


def filmed(folder: Path, board=BOARD, *faults: fault.Fault, demonstrates: bool = False) -> RawCapture:
    """The same in small pictures; board: what lies there. None: nothing does. demonstrates: walks, then."""

    def pictures(device, recording) -> Iterator[np.ndarray]:
        X_WB, looks = recording.takes[0].X_WB, recording.spans_of("anchor")
        for t_ns in device.frames[device.kept]:
            X_WC = device.X_W.sampled(np.array([t_ns]))[0]
            grey = np.full(SMALL.lens.size, 90, dtype=np.uint8)
            if board is not None and any(span.start_ns <= t_ns < span.stop_ns for span in looks):
                grey = draw_board(board, SMALL.lens, X_WC.inverse() * X_WB)
            yield np.repeat(grey[..., None], 3, axis=2)

    takes = [anchor_take(np.random.default_rng(0), stations=4)]
    takes += [walk_take(np.random.default_rng(0), metres=1.0)] if demonstrates else []
    config = RigConfig(
        noise=CLEAN,
        seed=3,
        faults=faults,
        glimpses=False,
        imu=False,
        cameras={"chest": SMALL, "hand": SMALL},
    )
    simulate_session(takes, config, folder, pictures=pictures)
    return RawCapture.open(folder / "capture")


def said_of_board(capture: RawCapture) -> set[str]:
    about = {"frontal-views", "wrong-board", "board-not-seen", "pictures-off-poses"}
    return set(check_capture(capture).verdict.names) & about


@pytest.mark.long
def test_a_board_that_is_looked_at_from_aside_has_nothing_against_it(tmp_path):
    assert said_of_board(recorded(tmp_path)) == set()


def test_a_board_that_is_seen_from_the_front_alone_is_called_so(tmp_path):
    assert said_of_board(recorded(tmp_path, frontal=True)) == {"frontal-views"}


@pytest.mark.parametrize(("columns", "rows"), [(9, 6), (5, 5)], ids=str)
def test_corners_that_lie_otherwise_than_on_the_board_are_called_so(tmp_path, columns, rows):
    recorded(tmp_path)
    file = tmp_path / "capture" / "calibration" / "board.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "columns": columns, "rows": rows}))
    capture = RawCapture.open(tmp_path / "capture")
    assert said_of_board(capture) == {"wrong-board"}
    to = ["--output", str(tmp_path / "anchor.json")]
    assert main(["calibrate", "anchor", str(capture.path), *to]) == 1


@pytest.mark.long
def test_a_board_in_the_videos_is_found_and_fits(tmp_path):
    capture = filmed(tmp_path)
    assert not capture.corners
    assert said_of_board(capture) == set()


@pytest.mark.long
def test_another_board_in_the_videos_is_named(tmp_path):
    assert said_of_board(filmed(tmp_path, BOARD, fault.SwappedSquares())) == {"wrong-board"}


@pytest.mark.long
def test_labels_of_a_capture_are_refused_for_what_its_videos_show(tmp_path):
    capture = filmed(tmp_path / "swapped", BOARD, fault.SwappedSquares(), demonstrates=True)
    config = LabelConfig(use_tags=False, has_shared_clock=True, chest_height_m=1.4)
    [anchor] = anchors_of(recorded(tmp_path / "good"), "hand", clock_of(capture, "hand", config))
    [labels] = label_capture(capture, config, anchors=[anchor]).labels
    assert "wrong-board" in labels.verdict.names
    assert not labels.verdict.ok


@pytest.mark.long
def test_a_board_of_another_size_in_the_videos_is_another_board(tmp_path):
    columns, rows = 9, 7
    capture = filmed(tmp_path, Board(columns=columns, rows=rows, square_m=0.035, marker_m=0.0245))
    reasons = check_capture(capture).verdict.reasons
    about = [each for each in reasons if each.name in ("wrong-board", "roles-swapped", "hand-out-of-reach")]
    assert {each.name for each in about} == {"wrong-board"}
    assert any(f"{columns} columns and {rows} rows" in str(each) for each in about)  # small pictures: not all
    assert not any("swapped" in str(each) for each in about)


@pytest.mark.long
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_a_board_of_other_squares_is_another_board_and_no_hand_is_out_of_reach(tmp_path, scale):
    recorded(tmp_path)
    file = tmp_path / "capture" / "calibration" / "board.json"
    said = json.loads(file.read_text())
    file.write_text(
        json.dumps({**said, "square_m": scale * said["square_m"], "marker_m": scale * said["marker_m"]})
    )
    capture = RawCapture.open(tmp_path / "capture")
    assert said_of_board(capture) == {"wrong-board"}
    assert not worlds_joined(board_seen(capture, dict(capture.devices), {}, in_videos=False))
    [reason, *_] = [each for each in check_capture(capture).verdict.reasons if each.name == "wrong-board"]
    assert f"{1e3 * BOARD.square_m:.0f} mm wide" in reason.what


MIRROR = np.diag([1.0, 1.0, -1.0])
MISREAD = {
    "quaternion-order": lambda p, q: (p, q[[1, 2, 3, 0]]),
    "quaternion-order-back": lambda p, q: (p, q[[3, 0, 1, 2]]),
    "left-handed": lambda p, q: (MIRROR @ p, q * (1.0, -1.0, -1.0, 1.0)),
    "millimetres": lambda p, q: (1e3 * p, q),
    "camera-axes": lambda p, q: (p, np.array([-q[1], q[0], q[3], -q[2]])),  # half a turn about x
}


def rewritten(capture: RawCapture, role: str, misread) -> RawCapture:
    """With that device's poses written by another convention."""
    file = capture.path / role / "poses.csv"
    head, *lines = file.read_text().splitlines()
    out = [head]
    for line in lines:
        t_ns, *numbers, tracking = line.split(",")
        p, q = misread(*np.split(np.array(numbers, dtype=float), [3]))
        out.append(",".join([t_ns, *map(repr, [*p.tolist(), *q.tolist()]), tracking]))
    file.write_text("\n".join(out) + "\n")
    return RawCapture.open(capture.path)


@pytest.mark.long
@pytest.mark.parametrize("role", ["chest", "hand"])
@pytest.mark.parametrize("name", MISREAD)
def test_poses_of_another_convention_are_named_without_an_imu(tmp_path, role, name):
    capture = rewritten(recorded(tmp_path), role, MISREAD[name])
    reasons = check_capture(capture, with_checksums=False).verdict.reasons
    found = [each.name for each in reasons if each.what.startswith(f"{role}:") and each.is_fatal]
    assert found == [name]


@pytest.mark.long
def test_a_hand_whose_world_has_y_up_is_named_by_the_board_alone(tmp_path):
    half = np.sqrt(0.5)  # a turn by -90 degrees about x
    capture = rewritten(
        recorded(tmp_path),
        "hand",
        lambda p, q: (
            np.array([p[0], p[2], -p[1]]),
            half * np.array([q[0] + q[1], q[1] - q[0], q[2] + q[3], q[3] - q[2]]),
        ),
    )
    assert "y-up" in check_capture(capture, with_checksums=False).verdict.names


@pytest.mark.long
def test_poses_of_another_recording_are_named_and_no_convention_is_blamed(tmp_path):
    rng = np.random.default_rng(0)
    capture = rewritten(recorded(tmp_path), "hand", lambda p, q: (p + rng.normal(0.0, 0.3, 3), q))
    assert "poses-off-pictures" in check_capture(capture, with_checksums=False).verdict.names


def test_videos_without_a_board_are_said(tmp_path):
    assert said_of_board(filmed(tmp_path, None)) == {"board-not-seen"}


def test_where_one_world_lies_in_the_other_is_known_roughly(tmp_path):
    capture = recorded(tmp_path)
    devices = dict(capture.devices)
    seen = board_seen(capture, devices, {}, in_videos=False)
    truth = Truth.load(tmp_path / "truth")
    chest_ns, hand_ns = (each.views[len(each.views) // 2].t_ns for each in seen)
    off_m, off_rad = anchor_error(truth, 0, worlds_joined(seen)["hand"], chest_ns, hand_ns)
    assert off_m < 0.02
    assert off_rad < np.deg2rad(1.0)


def two_hands(folder: Path) -> RawCapture:
    """A person whose right hand is recorded twice, once as her left one; no anchor is solved."""
    rng = np.random.default_rng(0)
    walk = walk_take(rng, metres=1.0)
    to_the_right = walk.X_WE.p + 0.2 * walk.X_WC.R[:, :, 0]
    takes = [anchor_take(rng, stations=4), replace(walk, X_WE=replace(walk.X_WE, p=to_the_right))]
    config = RigConfig(noise=CLEAN, seed=3, glimpses=False, tags=False, imu=False)
    simulate_session(takes, config, folder)
    capture = folder / "capture"
    (capture / "checksums.json").unlink()
    said = json.loads((capture / "capture.json").read_text())
    hand = said["devices"].pop("hand")
    said["devices"] |= {"right_hand": hand, "left_hand": hand}
    (capture / "capture.json").write_text(json.dumps(said))
    shutil.copytree(capture / "hand", capture / "left_hand")
    (capture / "hand").rename(capture / "right_hand")
    head, *lines = (capture / "corners.csv").read_text().splitlines()
    out = [head]
    for line in lines:
        roles = ("right_hand", "left_hand") if ",hand," in line else ("",)
        out += [line.replace(",hand,", f",{role},") if role else line for role in roles]
    (capture / "corners.csv").write_text("\n".join(out) + "\n")
    return RawCapture.open(capture)


@pytest.mark.long
def test_of_two_hands_the_one_on_the_wrong_side_is_named_by_the_board_alone(tmp_path):
    capture = two_hands(tmp_path)
    report = check_capture(capture, has_shared_clock=True, with_checksums=False)
    [one] = report.demonstrations
    sides = [each.what for each in one.verdict.reasons if each.name == "sides-swapped"]
    assert len(sides) == 1
    assert sides[0].startswith("left_hand: it is on the right")
