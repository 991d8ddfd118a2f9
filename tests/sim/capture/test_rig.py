"""The simulated rig: what its devices say is the truth on their own clocks and in their own worlds."""

from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from calibration.board import Board
from calibration.camera import CameraModel
from calibration.capture.raw import RawCapture
from calibration.trajectory import LOST, OK, Trajectory
from robot_runtime.errors import InvalidValueError
from sim.capture import faults as fault
from sim.capture.cameras import misread
from sim.capture.drills import X_EH, Script, anchor_take, perform, sync_take, walk_take
from sim.capture.rig import CLEAN, NOISY, RigConfig
from sim.capture.scene import BOARD
from sim.capture.sensors import DeviceClock, Jump, Vio, run_vio, sample_times
from sim.capture.session import simulate_session
from sim.capture.takes import Take, record
from sim.capture.truth import Truth, anchor_error, clock_error_ns


def straight(seconds: float = 20.0, metres: float = 10.0) -> Trajectory:
    t_ns = np.arange(0, round(seconds * 1e9), 20_000_000)
    p = np.zeros((len(t_ns), 3))
    p[:, 0] = np.linspace(0.0, metres, len(t_ns))
    q = np.tile([1.0, 0.0, 0.0, 0.0], (len(t_ns), 1))
    return Trajectory(t_ns=t_ns, p=p, q=q, tracking=np.full(len(t_ns), OK))


def takes() -> list[Take]:
    rng = np.random.default_rng(5)
    return [anchor_take(rng, stations=2), walk_take(rng, metres=1.0)]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[RawCapture, Truth]:
    folder = tmp_path_factory.mktemp("clean")
    simulate_session(takes(), RigConfig(noise=CLEAN, seed=1), folder)
    return RawCapture.open(folder / "capture"), Truth.load(folder / "truth")


def test_a_clock_shows_true_time_with_offset_skew_and_jumps() -> None:
    clock = DeviceClock(t_zero_ns=10**9, offset_ns=500, skew_ppm=50.0, jumps=((5 * 10**9, -7),))
    assert clock.at(np.array([10**9, 2 * 10**9, 6 * 10**9])).tolist() == [
        10**9 + 500,
        2 * 10**9 + 500 + 50_000,
        6 * 10**9 + 500 + 250_000 - 7,
    ]


def test_times_of_samples_rise_whatever_their_jitter() -> None:
    times = sample_times(np.random.default_rng(0), 0, 10**10, rate_hz=60.0, jitter_ns=50e6)
    assert (np.diff(times) > 0).all()
    assert abs(len(times) - 600) <= 1


def test_an_odometry_without_errors_is_the_truth_in_a_world_of_its_own() -> None:
    odometry = run_vio(straight(), Vio(), np.random.default_rng(1))
    back = odometry.said.before(odometry.X_WV)
    np.testing.assert_allclose(back.p, straight().p, atol=1e-12)
    np.testing.assert_allclose(odometry.X_WV.rotation[:, 2], [0.0, 0.0, 1.0], atol=1e-12)


def test_an_odometry_drifts_with_the_root_of_its_path() -> None:
    ends = [run_vio(straight(), Vio(walk_m=0.005), np.random.default_rng(seed)) for seed in range(60)]
    off = np.array([each.said.before(each.X_WV).p[-1] - [10.0, 0.0, 0.0] for each in ends])
    assert off.std() == pytest.approx(0.005 * np.sqrt(10.0), rel=0.25)


def test_an_odometry_that_is_lost_stands_still_and_says_so() -> None:
    odometry = run_vio(straight(), Vio(), np.random.default_rng(1), lost=((5 * 10**9, 6 * 10**9),))
    said = odometry.said.between(5 * 10**9, 6 * 10**9)
    assert (said.tracking == LOST).all()
    assert np.ptp(said.p, axis=0).max() == 0.0


def test_a_jump_of_an_odometry_moves_all_that_follows() -> None:
    jump = Jump(t_ns=10 * 10**9, p=(0.05, 0.0, 0.0))
    odometry = run_vio(straight(), Vio(), np.random.default_rng(1), jumps=(jump,))
    off = odometry.said.before(odometry.X_WV).p - straight().p
    np.testing.assert_allclose(off[:500], 0.0, atol=1e-12)
    np.testing.assert_allclose(off[500:], np.tile([0.05, 0.0, 0.0], (500, 1)), atol=1e-12)


def test_a_person_who_stands_does_not_leave_the_place_and_one_who_walks_sways() -> None:
    still = perform(Script(seconds=4.0, body=[(0.0, (0, 0, 0))]), np.random.default_rng(0))
    goes = perform(Script(seconds=6.0, body=[(0.0, (0, 0, 0)), (6.0, (3.6, 0, 0))]), np.random.default_rng(0))
    assert np.ptp(still.X_WC.p[:, 1]) < 0.04
    assert np.ptp(goes.X_WC.p[:, 2]) > 0.03
    np.testing.assert_allclose(goes.x_WG[-1], [3.6, 0.0, 0.0], atol=0.15)


def test_takes_are_joined_without_a_jump() -> None:
    recording = record(takes())
    assert recording.X_WC.speed()[1].max() < 2.0
    assert recording.X_WE.speed()[1].max() < 2.5
    assert [span.kind for span in recording.spans] == ["anchor", "demonstration"]


def test_poses_are_the_truth_on_the_devices_clock_and_in_its_world(clean: tuple[RawCapture, Truth]) -> None:
    capture, truth = clean
    for role, X_W in (("chest", truth.X_WC), ("hand", truth.X_WE.then(truth.X_EH))):
        said = capture.devices[role].poses
        there = X_W.sampled(truth.true_time(role, said.t_ns))
        off = np.linalg.norm(said.before(truth.X_WV[role]).p - there.p, axis=1)
        assert off.max() < 0.005


def test_corners_and_the_board_fit_the_camera(clean: tuple[RawCapture, Truth]) -> None:
    capture, truth = clean
    for role, X_W in (("chest", truth.X_WC), ("hand", truth.X_WE.then(truth.X_EH))):
        found, info = capture.corners[role], capture.devices[role].info
        assert info.camera is not None
        at = X_W.sampled(truth.true_time(role, np.unique(found.t_ns)))
        X_CB = [at[i].inverse() * truth.boards[0] for i in range(len(at))]
        row = np.unique(found.t_ns, return_inverse=True)[1]
        p_C = np.array([X_CB[i].act(BOARD.corners_B[k]) for i, k in zip(row, found.corner, strict=True)])
        off = found.uv - CameraModel.from_dict(info.camera).project(p_C)
        assert np.sqrt((off**2).mean()) < 0.3


def test_inertial_samples_feel_gravity_and_turn_as_the_camera_does(clean: tuple[RawCapture, Truth]) -> None:
    capture, truth = clean
    imu = capture.devices["hand"].imu
    assert imu is not None
    assert np.linalg.norm(imu.a, axis=1).mean() == pytest.approx(9.81, abs=0.1)
    middles, speed = truth.X_WE.angular_speed()
    true = np.interp(truth.true_time("hand", imu.t_ns), middles, speed)
    assert np.abs(np.linalg.norm(imu.w, axis=1) - true).mean() < 0.02


def test_the_same_seed_gives_the_same_bits(clean: tuple[RawCapture, Truth], tmp_path: Path) -> None:
    capture, _ = clean
    simulate_session(takes(), RigConfig(noise=CLEAN, seed=1), tmp_path)
    assert (tmp_path / "capture/checksums.json").read_bytes() == (
        capture.path / "checksums.json"
    ).read_bytes()


def test_what_is_true_has_no_error(clean: tuple[RawCapture, Truth]) -> None:
    _, truth = clean
    t_ns = np.array([3 * 10**9])
    on_clock = {role: truth.clocks[role].at(t_ns) for role in ("chest", "hand")}
    m, rad = anchor_error(truth, 0, truth.anchor(), int(on_clock["chest"][0]), int(on_clock["hand"][0]))
    assert m < 0.002
    assert rad < 0.002
    assert np.abs(clock_error_ns(truth, on_clock["hand"], on_clock["chest"])).max() <= 2.0


def test_a_truth_is_read_back_and_lies_outside_the_raw_zone(clean: tuple[RawCapture, Truth]) -> None:
    capture, truth = clean
    assert not any("truth" in path.name for path in capture.path.rglob("*"))
    t_ns = np.array([2 * 10**9, 3 * 10**9])
    p, R = truth.hand_in_chest(t_ns)
    X_CE = truth.X_WC.at(int(t_ns[0])).inverse() * truth.X_WE.at(int(t_ns[0]))
    np.testing.assert_allclose(p[0], X_CE.translation, atol=1e-9)
    np.testing.assert_allclose(R[0], X_CE.rotation, atol=1e-9)
    with pytest.raises(InvalidValueError, match="holds no truth"):
        Truth.load(capture.path)


def test_a_board_that_is_described_wrongly_is_misread_as_the_real_detector_does() -> None:
    ids, p_B = misread(BOARD, BOARD)
    np.testing.assert_allclose(p_B, BOARD.corners_B[ids])
    swapped = Board(columns=5, rows=8, square_m=0.05, marker_m=0.037)
    ids, p_B = misread(BOARD, swapped)
    assert len(ids) == 0 or np.abs(p_B - swapped.corners_B[ids]).max() > 0.02


def test_each_fault_leaves_what_it_says(tmp_path: Path) -> None:
    faults = (
        fault.QuaternionOrder(role="hand"),
        fault.DroppedFrames(share=0.3, role="chest"),
        fault.EmptyBattery(role="hand"),
        fault.CameraTurned(role="chest"),
    )
    simulate_session(takes(), RigConfig(noise=CLEAN, seed=1, faults=faults), tmp_path)
    capture, truth = RawCapture.open(tmp_path / "capture"), Truth.load(tmp_path / "truth")
    chest, hand = capture.devices["chest"], capture.devices["hand"]
    assert not capture.is_closed
    assert hand.poses.t_ns[-1] < chest.poses.t_ns[-1] + 10**12
    assert "poses.csv" in hand.cut
    assert len(chest.frames) < 0.75 * len(chest.poses)
    there = truth.X_WC.sampled(truth.true_time("chest", chest.poses.t_ns))
    turned = pin.log3(there[100].rotation.T @ (truth.X_WV["chest"] * chest.poses[100]).rotation)
    assert np.rad2deg(np.linalg.norm(turned)) == pytest.approx(2.0, abs=0.1)
    q = hand.poses.q[100]
    X_WH = (
        truth.X_WV["hand"].inverse()
        * truth.X_WE.at(int(truth.true_time("hand", hand.poses.t_ns[100:101])[0]))
        * X_EH
    )
    w, x, y, z = pin.Quaternion(X_WH.rotation).coeffs()[[3, 0, 1, 2]]
    assert min(np.abs(q - s * np.array([x, y, z, w])).max() for s in (1, -1)) < 1e-3


def test_a_clock_that_is_set_back_leaves_a_capture_that_says_where(tmp_path: Path) -> None:
    config = RigConfig(noise=CLEAN, seed=1, faults=(fault.ClockJump(ms=-200.0, role="hand"),))
    simulate_session(takes(), config, tmp_path)
    with pytest.raises(InvalidValueError, match="jumped back"):
        _ = RawCapture.open(tmp_path / "capture").devices["hand"].poses


def test_a_noisy_rig_drops_pictures_and_jitters() -> None:
    assert NOISY.device.share_dropped > 0.0
    assert NOISY.device.jitter_ms > 0.0


def test_a_shaken_pair_turns_alike() -> None:
    take = sync_take(np.random.default_rng(3))
    chest, hand = take.X_WC.angular_speed()[1], take.X_WE.angular_speed()[1]
    np.testing.assert_allclose(chest, hand, atol=1e-6)
    assert np.rad2deg(chest).max() < 400.0
