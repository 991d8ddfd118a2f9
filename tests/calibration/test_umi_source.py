"""One hand of a UMI replay buffer, as UMI's own library writes it, becomes a hand's device."""

import zipfile
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from calibration.capture.sources.spec import parse, read
from calibration.tcp import UMI_GRIPPER
from robot_runtime.cli import main
from robot_runtime.errors import InvalidValueError

zarr = pytest.importorskip("zarr")
ROWS, ENDS = 1200, (500, 1200)


def session(folder: Path, *, num_robots: int = 1) -> Path:
    """A buffer with numbers compressed by Blosc, as UMI has them, in Zarr v2."""
    from numcodecs import Blosc

    rng = np.random.default_rng(0)
    root = zarr.open_group(str(folder), mode="w", zarr_format=2)
    codec = Blosc(cname="zstd", clevel=3)

    def keep(name: str, values: np.ndarray, chunks: tuple[int, ...]) -> None:
        array = root.create_array(
            name, shape=values.shape, chunks=chunks, dtype=values.dtype, compressors=codec
        )
        array[:] = values

    for i in range(num_robots):
        keep(f"data/robot{i}_eef_pos", rng.normal(0.0, 0.2, (ROWS, 3)).astype(np.float32), (700, 3))
        keep(f"data/robot{i}_eef_rot_axis_angle", rng.normal(0, 0.5, (ROWS, 3)).astype(np.float32), (700, 3))
        keep(f"data/robot{i}_gripper_width", rng.uniform(0, 0.08, (ROWS, 1)).astype(np.float32), (700, 1))
        keep(f"data/camera{i}_rgb", rng.integers(0, 255, (ROWS, 16, 16, 3), dtype=np.uint8), (1, 16, 16, 3))
    keep("meta/episode_ends", np.array(ENDS, dtype=np.int64), (2,))
    return folder


@pytest.fixture(scope="module")
def buffer(tmp_path_factory) -> Path:
    return session(tmp_path_factory.mktemp("umi") / "session.zarr", num_robots=2)


@pytest.mark.long
@pytest.mark.parametrize("robot", [0, 1])
def test_an_episode_is_read_with_its_images_and_its_camera_s_poses(buffer, robot):
    found = read(parse(f"umi:{buffer},episode=1,robot={robot}"))
    root = zarr.open_group(str(buffer), mode="r", zarr_format=2)
    rows = slice(*ENDS)
    assert len(found.poses) == ENDS[1] - ENDS[0]
    tcp = found.poses.then(UMI_GRIPPER.X_HE)
    np.testing.assert_allclose(tcp.p, root[f"data/robot{robot}_eef_pos"][rows], atol=1e-6)
    wanted = pin.exp3(root[f"data/robot{robot}_eef_rot_axis_angle"][rows][7].astype(float))
    np.testing.assert_allclose(tcp[7].rotation, wanted, atol=1e-6)
    width = root[f"data/robot{robot}_gripper_width"][rows].ravel()
    np.testing.assert_allclose(found.widths.width_m, width, atol=1e-7)
    images = list(found.pictures())
    assert len(images) == len(found.frames_ns) == len(found.poses)
    assert (images[3] == root[f"data/camera{robot}_rgb"][ENDS[0] + 3]).all()
    assert np.diff(found.poses.t_ns).mean() == pytest.approx(1e9 * 1001 / 60_000, abs=1)
    assert "no times" in found.lacks[0]


@pytest.mark.long
def test_a_zipped_buffer_is_the_same(buffer, tmp_path):
    path = tmp_path / "session.zarr.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for each in sorted(buffer.rglob("*")):
            if each.is_file():
                archive.write(each, each.relative_to(buffer).as_posix())
    zipped, folder = (read(parse(f"umi:{each}")) for each in (path, buffer))
    np.testing.assert_array_equal(zipped.poses.p, folder.poses.p)


def test_what_is_no_buffer_and_no_episode_of_it_is_refused(tmp_path):
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(InvalidValueError, match="has no meta/episode_ends"):
        read(parse(f"umi:{tmp_path}/a.zarr"))
    (tmp_path / "b.zip").write_text("none")
    with pytest.raises(InvalidValueError, match="no zip of a Zarr"):
        read(parse(f"umi:{tmp_path}/b.zip"))


@pytest.mark.long
def test_an_episode_that_is_not_there_is_refused_with_the_numbers_that_are(buffer):
    with pytest.raises(InvalidValueError, match="has episodes 0 to 1; got 5"):
        read(parse(f"umi:{buffer},episode=5"))


def test_a_hand_without_a_chest_is_told_what_it_lacks(tmp_path, capsys):
    (tmp_path / "a.zarr").mkdir()
    command = ["capture", "import", "--output", str(tmp_path / "out"), "--hand", f"umi:{tmp_path}/a.zarr"]
    assert main(command) == 1
    assert "labels need a chest camera" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
