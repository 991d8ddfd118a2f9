"""`calibrate hand-eye` on a folder and on a robot that is here, and what it says of bad input."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pinocchio as pin
import pytest

from calibration.board import Board
from calibration.camera import Intrinsics, Pinhole
from calibration.commands.calibrate.live_shots import LiveShots, read_places
from calibration.commands.calibrate.result import figure_words, sigma_words
from calibration.commands.calibrate.shots import COLUMNS, Shot, ShotsFolder, read_poses, shots_of_folder
from calibration.hand_eye import HandEye
from calibration.store import load, save
from robot_runtime.cli import main
from robot_runtime.core.robot import ArmState
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.robot import Robot
from robot_runtime.robot_file import OpenRobot
from sim.capture.board_scene import draw_board

BOARD = Board(columns=7, rows=5, square_m=0.04, marker_m=0.029)
CAMERA = Pinhole(size=(240, 320), fx=300.0, fy=300.0, cx=159.5, cy=119.5)
X_EC = pin.SE3(pin.exp3(np.array([0.0, 0.1, 1.5])), np.array([0.06, 0.0, -0.08]))
X_AB = pin.SE3(np.diag([1.0, -1.0, -1.0]), np.array([0.4, 0.1, 0.0]))


def shots(num: int) -> list[Shot]:
    rng, out = np.random.default_rng(0), []
    centre = X_AB.act(BOARD.centre_B)
    for k in range(num):
        around, tilt = 2.4 * k, rng.uniform(0.3, 0.6)
        aside = np.array([np.sin(tilt) * np.cos(around), np.sin(tilt) * np.sin(around), np.cos(tilt)])
        x = np.cross(-aside, [0.0, 1.0, 0.0])
        x /= np.linalg.norm(x)
        R = np.column_stack([x, np.cross(-aside, x), -aside]) @ pin.exp3(
            np.array([0, 0, rng.uniform(-0.5, 0.5)])
        )
        X_AC = pin.SE3(R, centre + 0.4 * aside)
        grey = draw_board(BOARD, CAMERA, X_AC.inverse() * X_AB)
        out.append(
            Shot(name=str(k), picture=np.repeat(grey[..., None], 3, axis=2), X_AE=X_AC * X_EC.inverse())
        )
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures with their poses, the board and the camera."""
    path = tmp_path_factory.mktemp("shots")
    save(path / "board.json", BOARD)
    save(path / "camera.json", Intrinsics(camera=CAMERA))
    kept = ShotsFolder(path)
    for shot in shots(12):
        kept.add(shot)
    return path


def calibrate(source: Path | str, folder: Path, output: Path, *others: str) -> int:
    files = ["--board", str(folder / "board.json"), "--intrinsics", str(folder / "camera.json")]
    return main(["calibrate", "hand-eye", str(source), *files, "--output", str(output), *others])


def test_a_folder_of_pictures_gives_the_camera_s_place(folder, tmp_path, capsys):
    assert calibrate(folder, folder, tmp_path / "wrist.json") == 0
    found = load(tmp_path / "wrist.json", HandEye)
    assert np.linalg.norm(found.X_EC.translation - X_EC.translation) < 5e-4
    assert "usable" in capsys.readouterr().out


def test_quaternions_in_another_order_are_named_and_the_result_is_refused(folder, tmp_path, capsys):
    swapped = tmp_path / "swapped"
    swapped.mkdir()
    for file in folder.glob("*.png"):
        (swapped / file.name).symlink_to(file)
    text = (folder / "poses.csv").read_text()
    (swapped / "poses.csv").write_text(text.replace("qw,qx,qy,qz", "qx,qy,qz,qw"))
    assert calibrate(swapped, folder, tmp_path / "wrist.json") == 1
    assert "quaternion-order" in capsys.readouterr().out
    with pytest.raises(InvalidValueError, match="refused when it was made"):
        load(tmp_path / "wrist.json", HandEye)


def test_a_table_of_poses_that_cannot_be_meant_is_refused_with_its_line(tmp_path):
    table = tmp_path / "poses.csv"
    for text, says in (
        ("picture,px\na.png,1\n", "lacks py, pz, qw"),
        (f"{','.join(COLUMNS)}\n", "has no rows"),
        (f"{','.join(COLUMNS)}\na.png,0,0,0,1,0,0\n", "line 2: expected seven numbers"),
        (f"{','.join(COLUMNS)}\na.png,0,0,0,1,1,0,0\n", "line 2.*unit quaternion"),
    ):
        table.write_text(text)
        with pytest.raises(InvalidValueError, match=says):
            read_poses(table)
    table.write_text(f"{','.join(COLUMNS)}\na.png,0,0,0,1,0,0,0\n")
    with pytest.raises(InvalidValueError, match=r"a.png is no picture"):
        list(shots_of_folder(tmp_path))
    table.write_text("joint_1,joint_2\n0.1,90\n")
    with pytest.raises(InvalidValueError, match="radians"):
        read_places(table, ("a", "b"))


def test_a_folder_without_poses_says_what_it_should_hold(folder, tmp_path, capsys):
    for command in ("hand-eye", "robot-world", "chest"):
        needs = ["--board", str(folder / "board.json"), "--intrinsics", str(folder / "camera.json")]
        needs += ["--output", str(tmp_path / "out.json")]
        needs += ["--board-height-m", "0.1"] if command == "chest" else []
        assert main(["calibrate", command, str(tmp_path), *needs]) == 1
        said = capsys.readouterr().err
        assert "has no poses.csv" in said
        assert ",".join(COLUMNS) in said
        assert "Errno" not in said


def test_a_folder_without_a_capture_says_what_is_expected(tmp_path, capsys):
    assert main(["calibrate", "tcp", str(tmp_path), "--output", str(tmp_path / "tcp.json")]) == 1
    said = capsys.readouterr().err
    assert "there is no capture.json in it" in said
    assert "px,py,pz" in said
    assert "Errno" not in said


def test_a_result_that_is_refused_leaves_a_good_one_of_an_earlier_run(folder, tmp_path, capsys):
    output = tmp_path / "wrist.json"
    assert calibrate(folder, folder, output) == 0
    good = output.read_bytes()
    few = tmp_path / "few"
    few.mkdir()
    for file in folder.glob("*.png"):
        (few / file.name).symlink_to(file)
    text = (folder / "poses.csv").read_text()
    (few / "poses.csv").write_text(text.replace("qw,qx,qy,qz", "qx,qy,qz,qw"))
    assert calibrate(few, folder, output) == 1
    assert output.read_bytes() == good
    assert "wrist.refused.json" in capsys.readouterr().out
    with pytest.raises(InvalidValueError, match="refused"):
        load(tmp_path / "wrist.refused.json", HandEye)


def test_a_result_never_replaces_a_file_of_another_kind(folder, tmp_path, capsys):
    output = tmp_path / "camera.json"
    output.write_bytes((folder / "camera.json").read_bytes())
    assert calibrate(folder, folder, output) == 1
    assert output.read_bytes() == (folder / "camera.json").read_bytes()
    assert "it holds camera" in capsys.readouterr().out
    assert load(tmp_path / "camera.hand_eye.json", HandEye).verdict.ok


def test_a_measured_board_is_not_made_anew(tmp_path, capsys):
    make = ["calibrate", "board", "--output", str(tmp_path)]
    assert main(make) == main(make) == 0  # the same again loses nothing
    measured = ["--board", str(tmp_path / "board.json"), "--measured-mm", "99.0"]
    assert main(["calibrate", "board", *measured]) == 0
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main([*make, "--paper", "a3"]) == 1
    assert "print was measured" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_pictures_without_the_board_say_what_they_show(folder, tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    cv2.imwrite(str(empty / "a.png"), np.full((240, 320), 128, np.uint8))
    (empty / "poses.csv").write_text(f"{','.join(COLUMNS)}\na.png,0,0,0,1,0,0,0\n")
    assert calibrate(empty, folder, tmp_path / "wrist.json") == 1
    assert "seen in none of 1 pictures" in capsys.readouterr().err


def test_one_picture_for_intrinsics_is_said_to_be_too_few(folder, tmp_path, capsys):
    one = tmp_path / "one"
    one.mkdir()
    (one / "000.png").write_bytes((folder / "000.png").read_bytes())
    command = ["calibrate", "intrinsics", str(one), "--board", str(folder / "board.json")]
    assert main([*command, "--output", str(tmp_path / "camera.json")]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "seen in 1 of 1 pictures. few-views: 1 view, and 12 are needed at least, 30 make it sure" in said
    assert "is it in view" not in said


def test_a_board_with_its_sides_swapped_is_called_a_wrong_board(folder, tmp_path, capsys):
    (tmp_path / "camera.json").write_bytes((folder / "camera.json").read_bytes())
    save(tmp_path / "board.json", replace(BOARD, columns=BOARD.rows, rows=BOARD.columns))
    assert calibrate(folder, tmp_path, tmp_path / "wrist.json") == 1
    said = capsys.readouterr().err
    assert (
        "wrong-board: The images show a board of 7 columns and 5 rows (columns and rows are swapped)" in said
    )


class Played:
    """An arm and its camera that a person moves: half a second on the way, a second at each place."""

    num_joints = 1

    def __init__(self, played: list[Shot]) -> None:
        self.played, self.t_ns = played, 0
        self.size = played[0].picture.shape[:2]

    def _here(self) -> tuple[Shot, bool]:
        k, rest_ns = divmod(self.t_ns, 1_500_000_000)
        return self.played[min(k, len(self.played) - 1)], rest_ns > 500_000_000

    def read_arm(self) -> ArmState:
        shot, stands = self._here()
        X = shot.X_AE.copy()
        if not stands:
            X.translation = X.translation + np.array([0.0, 0.0, 0.1 + 1e-10 * (self.t_ns % 500_000_000)])
        return ArmState(t_ns=self.t_ns, q=np.zeros(1), dq=np.zeros(1), X_BE=X)

    def read_picture(self) -> Image:
        self.t_ns += 50_000_000
        return Image(t_ns=self.t_ns, pixels=self._here()[0].picture)


def one_arm(played: list[Shot], *cameras: str) -> OpenRobot:
    """A robot whose arm a person moves from shot to shot; its cameras, "wrist" if none is named, see them."""
    there = Played(played)

    def member(**members: object) -> object:
        return type("Part", (), members)()

    arm = member(
        num_joints=1,
        read=lambda self: there.read_arm(),
        write=lambda self, command: command,
        stop=lambda self: None,
    )
    camera = member(size=there.size, read=lambda self: there.read_picture(), close=lambda self: None)
    robot = Robot({"arm": arm}, cameras=dict.fromkeys(cameras or ("wrist",), camera))
    return OpenRobot(robot=robot, options={}, home={})


def test_a_person_moves_the_arm_and_a_view_is_taken_wherever_it_stands(folder):
    seen, said = list(shots_of_folder(folder))[:4], list[str]()
    live = LiveShots(one_arm(seen), part=None, camera=None, board=BOARD, say=said.append)
    taken = list(live.by_person(4))
    assert [shot.X_AE.isApprox(each.X_AE) for shot, each in zip(taken, seen, strict=True)] == [True] * 4
    assert "move and turn the end effector to another pose, and hold it still" in said
    with pytest.raises(InvalidValueError, match="--camera"):
        LiveShots(one_arm(seen, "wrist", "front"), part=None, camera=None, board=BOARD, say=print)


def test_figures_of_files_are_shown_in_what_people_read():
    assert figure_words("gravity_rad", np.pi / 180) == ("gravity", "1 degrees")
    assert figure_words("chest_tilt_median_rad", np.pi / 6) == ("chest tilt median", "30 degrees")
    assert figure_words("same_time_apart_m", 0.0042) == ("same time apart, position", "4.2 mm")
    assert figure_words("same_time_apart_rad", np.pi / 180) == ("same time apart, rotation", "1 degrees")
    assert figure_words("held_out_px", 0.123) == ("held out", "0.123 px")
    assert figure_words("coverage_share", 0.8) == ("coverage", "80 %")
    assert figure_words("board_scale", 1.0004) == ("board scale", "100.04 %")
    assert figure_words("board_scale_sigma", 5.636e-05) == ("board scale, one sigma", "0.00564 %")
    assert figure_words("rms_rad_s", np.pi / 180) == ("rms", "1 degrees/s")
    assert figure_words("views", 40) == ("views", "40")


@pytest.mark.parametrize("paper", ["A3", "a3", "Letter"])
def test_a_paper_may_be_written_as_it_is_on_the_box(tmp_path, paper):
    assert main(["calibrate", "board", "--paper", paper, "--output", str(tmp_path / "board")]) == 0
    wanted = 50 if paper.lower() == "a3" else 24
    assert load(tmp_path / "board" / "board.json", Board).square_m == pytest.approx(wanted / 1e3)


def test_a_paper_that_no_board_is_drawn_for_is_told_the_others(tmp_path, capsys):
    assert main(["calibrate", "board", "--paper", "A5", "--output", str(tmp_path / "board")]) == 1
    assert "--paper takes" in (said := capsys.readouterr().err)
    assert "a4, a3, letter, tabloid; got A5" in said


def test_a_place_that_the_views_do_not_determine_gets_no_figure():
    assert sigma_words(np.diag([1e-6] * 6)).startswith("1.73 mm")
    assert sigma_words(1e6 * np.eye(6)) == "an unknown amount: the views do not determine it"
