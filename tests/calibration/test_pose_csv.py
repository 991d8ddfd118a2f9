"""Tables of poses, widths and times as collectors write them: columns by name, units by name."""

from pathlib import Path

import numpy as np
import pytest

from calibration.capture.sources.pose_csv import read_pose_csv
from calibration.capture.sources.recording import read_video
from calibration.capture.sources.spec import parse, read
from calibration.capture.sources.tum import read_trajectory
from calibration.trajectory import LOST, OK
from robot_runtime.errors import InvalidValueError
from tests.calibration.test_sources import T_NS, WANTED, S, same, video, xyzw


def table(path: Path, order: str, *, times=lambda t_ns: str(t_ns), **more: str) -> Path:
    """WANTED, with the columns in that order; more: further columns, the same in all rows."""
    names = order.split(",")
    lines = [",".join([*names, *more])]
    for t_ns, X in zip(T_NS.tolist(), WANTED, strict=True):
        x, y, z, w = xyzw(X)
        values = dict(zip(("x", "y", "z"), X.translation, strict=True))
        values |= {
            "tx": values["x"],
            "ty": values["y"],
            "tz": values["z"],
            "qw": w,
            "qx": x,
            "qy": y,
            "qz": z,
        }
        cells = [times(t_ns) if name.startswith("t_") else f"{values[name]:.9f}" for name in names]
        lines.append(",".join([*cells, *more.values()]))
    path.write_text("\n".join(lines) + "\n")
    return path


def seconds(t_ns: int) -> str:
    return f"{t_ns // S}.{t_ns % S:09d}"


@pytest.mark.parametrize(
    ("order", "times"),
    [
        ("t_ns,x,y,z,qw,qx,qy,qz", str),
        ("qx,qy,qz,qw,tx,ty,tz,t_ns", str),
        ("t_s,x,y,z,qx,qy,qz,qw", seconds),
        ("t_us,x,y,z,qw,qx,qy,qz", lambda t_ns: f"{t_ns // 1000}.{t_ns % 1000:03d}"),
    ],
)
def test_columns_are_found_by_their_names_in_any_order(tmp_path, order, times):
    path = table(tmp_path / "a.csv", order, times=times, temperature="31.5")
    poses = read_trajectory(path)
    assert (poses.t_ns == T_NS).all()
    same(poses)


def test_a_column_of_tracking_is_read(tmp_path):
    path = table(tmp_path / "a.csv", "t_ns,x,y,z,qw,qx,qy,qz", tracking="ok")
    path.write_text(path.read_text().replace(",ok", ",lost", 1))
    assert read_pose_csv(path).tracking.tolist() == [LOST] + [OK] * (len(T_NS) - 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("t_ns", "stamp"), "line 1: expected a column of times, t_ns, t_us"),
        (lambda text: text.replace("qw", "w"), "line 1: expected the columns t_ns or t_s, x, y, z"),
        (lambda text: text.replace("1700000000000000000", "1700000000.5"), "name the column t_s"),
        (lambda text: text.replace("t_ns", "t_s"), "are the times in nanoseconds"),
        (
            lambda text: text.replace("\n1700000000033333333,", "\n1700000000033333333,x", 1),
            "line 3: expected",
        ),
        (lambda text: text.rpartition(",")[0] + "\n", "expected 8 values, as in line 1; got 7"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_with_its_line(tmp_path, change, said):
    path = table(tmp_path / "a.csv", "t_ns,x,y,z,qw,qx,qy,qz")
    path.write_text(change(path.read_text()))
    with pytest.raises(InvalidValueError, match=said) as refused:
        read_trajectory(path)
    assert str(path) in str(refused.value)


def test_widths_are_found_by_their_column_and_unit(tmp_path):
    video(tmp_path / "a.mp4")
    (tmp_path / "w.csv").write_text("raw,width_mm,t_s\n7,80,1\n8,40.5,2\n")
    found = read(parse(f"video:{tmp_path}/a.mp4,gripper={tmp_path}/w.csv")).widths
    assert found.t_ns.tolist() == [S, 2 * S]
    np.testing.assert_allclose(found.width_m, [0.08, 0.0405])


def test_times_of_images_in_microseconds_are_refused_or_named_by_their_column(tmp_path):
    lines = [str(t // 1000) for t in T_NS.tolist()]
    video(tmp_path / "a.mp4")
    (tmp_path / "t.csv").write_text("\n".join(["time", *lines]))
    with pytest.raises(InvalidValueError, match=r"whole nanoseconds, got 3e\+04 images a second"):
        read_video(tmp_path / "a.mp4", stamps_file=tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("\n".join(["t_us", *lines]))
    found = read_video(tmp_path / "a.mp4", stamps_file=tmp_path / "t.csv")
    assert (found.frames_ns == T_NS // 1000 * 1000).all()
