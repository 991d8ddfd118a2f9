"""What the page of a live calibration shows: made of real detections, the same as the terminal is told."""

import msgspec
import numpy as np
import pytest

from calibration.camera import Intrinsics
from calibration.chain import Excitation
from calibration.commands.calibrate.arm_guide import BEGIN, ArmGuide
from calibration.commands.calibrate.live_guide import LiveGuide
from calibration.commands.calibrate.live_shots import LiveShots
from calibration.commands.calibrate.shown import guide_of_views
from calibration.store import save
from calibration.verdict import Reason, Verdict
from calibration.view_guide import ViewGuide
from robot_runtime.cli import main
from robot_runtime.page.guide import Guide
from sim.capture.board_scene import draw_board
from tests.calibration.board_views import BOARD, PINHOLE
from tests.calibration.test_view_guide import EMPTY, board_at
from tests.cli.test_calibrate import BOARD as ARM_BOARD
from tests.cli.test_calibrate import one_arm, shots


def as_json(guide: Guide) -> dict:
    """As a browser gets it."""
    return msgspec.json.decode(msgspec.json.encode(guide))


def test_corners_cells_tilts_and_limits_are_those_that_were_measured():
    views, shown = ViewGuide(BOARD, num=40), Guide(title="calibrate")
    X_CB = board_at((0.35, 0.4), "right", 0.6)
    look = views.look(draw_board(BOARD, PINHOLE, X_CB))
    page = as_json(guide_of_views(shown, views, look))
    assert (page["num_taken"], page["num_wanted"]) == (1, 30)
    assert page["do"] == views.advice
    assert page["problem"] == ""

    there = PINHOLE.project(BOARD.corners_B @ X_CB.rotation.T + X_CB.translation)
    height, width = PINHOLE.size
    off = np.array(page["corners"]) * (width, height) - 0.5 - there
    assert len(page["corners"]) == BOARD.num_corners
    assert np.abs(off).max() < 0.3  # pixels

    cells = page["cells"]
    filled = np.array(cells["are_filled"]).reshape(cells["rows"], cells["columns"])
    assert filled[2, 2]  # where the board is
    assert not filled[:, 6:].any()
    covered = next(each for each in page["gauges"] if each["name"] == "covered")
    assert covered["share"] == pytest.approx(filled.mean())
    assert covered["text"] == f"{100 * filled.mean():.0f} %, at least 90"
    assert not covered["is_good"]

    assert [(mark["name"], mark["is_there"]) for mark in page["marks"]] == [
        ("upper", False),
        ("right", True),
        ("lower", False),
        ("left", False),
    ]
    blur = page["gauges"][0]
    assert blur["text"] == f"{look.corners.blur_px:.1f} px, at most 2.0"
    assert blur["is_good"]
    assert blur["share"] < blur["limit_share"]


def test_a_picture_without_the_board_keeps_what_was_taken_and_says_what_is_wrong():
    views = ViewGuide(BOARD, num=40)
    views.look(draw_board(BOARD, PINHOLE, board_at((0.35, 0.4), "right", 0.6)))
    page = as_json(guide_of_views(Guide(title="calibrate"), views, views.look(EMPTY)))
    assert page["problem"] == "the board is not seen: whole, flat, lit?"
    assert page["do"] == views.advice
    assert page["num_taken"] == 1
    assert page["corners"] == []
    assert any(page["cells"]["are_filled"])
    assert page["gauges"][0]["text"] == ""


def test_before_the_first_picture_all_is_missing():
    page = as_json(guide_of_views(Guide(title="calibrate"), ViewGuide(BOARD, num=12)))
    assert (page["num_taken"], page["num_wanted"]) == (0, 12)
    assert "whole board" in page["do"]
    assert not any(page["cells"]["are_filled"])
    assert not any(mark["is_there"] for mark in page["marks"])


def test_a_verdict_is_shown_with_its_reasons_and_the_numbers_of_the_table():
    reason = Reason(name="coverage", what="Corners cover 40 %.", do="Move the board.", is_fatal=True)
    found = Intrinsics(camera=PINHOLE, residuals={"rms_px": 0.125}, verdict=Verdict.of([reason]))
    live = LiveGuide("calibrate intrinsics", None)
    live.judge(found, {"model": "pinhole"})
    end = as_json(live.guide)["end"]
    assert (end["text"], end["is_good"]) == ("NOT USABLE", False)
    assert end["reasons"] == [
        {"name": "coverage", "text": "Corners cover 40 %. Move the board.", "is_fatal": True}
    ]
    assert end["rows"] == [["model", "pinhole"], ["rms", "0.125 px"]]


def test_a_command_that_fails_says_so_on_its_page():
    live = LiveGuide("calibrate intrinsics", None)
    with pytest.raises(ValueError, match="no focal length"), live:
        raise ValueError("no focal length explains the views")
    end = as_json(live.guide)["end"]
    assert "no focal length explains the views" in end["text"]
    assert not end["is_good"]


def test_an_arm_that_a_person_moves_is_shown_picture_by_picture():
    live, pages = LiveGuide("calibrate hand-eye", None), list[dict]()
    arm = ArmGuide(live)

    def look(glance) -> None:
        arm.look(glance)
        pages.append(as_json(live.guide))

    taken = LiveShots(one_arm(shots(4)), part=None, camera=None, board=ARM_BOARD, say=print, look=look)
    for _ in arm.taken(taken.by_person(4), None, num=4):
        pass
    assert pages[0]["do"] == BEGIN
    assert pages[0]["corners"] == []
    assert {page["num_wanted"] for page in pages} == {4}
    assert sorted({page["num_taken"] for page in pages}) == [0, 1, 2, 3]
    assert any("move and turn the end effector to another pose" in page["do"] for page in pages)
    seen = [page for page in pages if page["corners"]]
    assert len(seen) > 4  # they stay while the hand stands there
    assert all(page["gauges"][0]["is_good"] for page in seen)
    poses = [shot.X_AE for shot in shots(4)[:3]]
    turned = [f"{degrees:.0f}°, at least 15°" for degrees in Excitation.of(poses).degrees[:2]]
    assert [mark["text"] for mark in seen[-1]["marks"]] == turned


@pytest.mark.parametrize("command", ["intrinsics", "hand-eye", "robot-world"])
def test_a_page_of_pictures_that_were_taken_before_is_refused(tmp_path, capsys, command):
    save(tmp_path / "board.json", BOARD)
    save(tmp_path / "camera.json", Intrinsics(camera=PINHOLE))
    needs = ["--board", str(tmp_path / "board.json"), "--output", str(tmp_path / "out.json"), "--page"]
    needs += [] if command == "intrinsics" else ["--intrinsics", str(tmp_path / "camera.json")]
    assert main(["calibrate", command, str(tmp_path), *needs]) == 1
    assert "--page shows what is seen now" in capsys.readouterr().err
