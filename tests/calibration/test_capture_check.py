"""Every way in which a demonstration cannot be used is named, and a good one is not."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pinocchio as pin
import pytest

from calibration.camera import Pinhole
from calibration.capture.check import CaptureReport, check_capture
from calibration.capture.gravity import imu_turn
from calibration.capture.raw import CaptureWriter, RawCapture
from calibration.capture.values import DeviceInfo, Imu, Setup
from calibration.trajectory import LIMITED, LOST, OK, Trajectory

S, MS = 1_000_000_000, 1_000_000
T0 = 1_700_000_000 * S
LONG_S, STEP_S = 15.0, 0.01
CAMERA = Pinhole(size=(48, 64), fx=50.0, fy=50.0, cx=31.5, cy=23.5).to_dict()
SYNCS, DEMO = ((0.3, 3.8), (10.7, 14.5)), (4.2, 10.0)
# A camera that looks forward, 20 degrees down, in a world with z up.
R_WC = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]) @ pin.rpy.rpyToMatrix(-0.35, 0.0, 0.0)


MEASURED = {"chest_height_m": 1.3}


@dataclass(kw_only=True)
class Given:
    """A device's data, to be spoilt."""

    poses: Trajectory
    imu: Imu | None
    frames: np.ndarray
    info: DeviceInfo = field(
        default_factory=lambda: DeviceInfo(
            kind="simulated", fps=30.0, camera=CAMERA, X_device_camera=pin.SE3.Identity()
        )
    )


def motion(t_s: np.ndarray, seed: int, size: float) -> np.ndarray:
    """(N, 3) smooth, of its own."""
    rng = np.random.default_rng(seed)
    hz, phase, each = rng.uniform(0.2, 1.5, (4, 3)), rng.uniform(0, 6, (4, 3)), rng.normal(0, size, (4, 3))
    return (each * np.sin(2 * np.pi * hz * t_s[:, None, None] + phase)).sum(axis=1)


def device(seed: int) -> Given:
    """100 poses a second; turning together with the other one in sync spans (they share seed 9)."""
    t_s = np.arange(0.0, LONG_S, STEP_S)
    weight = np.zeros(len(t_s))
    for start, stop in SYNCS:
        weight = np.maximum(weight, np.clip(np.minimum(t_s - start, stop - t_s) / 0.3, 0.0, 1.0))
    w = weight[:, None] * motion(t_s, 9, 1.0) + (1 - weight)[:, None] * motion(t_s, seed, 0.25)
    # Angles as the sum of small turns, pulled back, so that it stays upright.
    R, rotations = R_WC.copy(), []
    for each in w:
        rotations.append(R)
        back = pin.log3(R.T @ R_WC)
        R = R @ pin.exp3(STEP_S * (each + 1.5 * back))
    turned = np.array([pin.log3(a.T @ b) for a, b in pairwise(rotations)]) / STEP_S
    p = np.array([0.0, 0.0, 1.3]) + motion(t_s, seed + 50, 0.06)
    t_ns = T0 + np.rint(t_s * S).astype(np.int64)
    poses = Trajectory.of(t_ns, [pin.SE3(R, each) for R, each in zip(rotations, p, strict=True)])
    dp = np.gradient(np.gradient(p, STEP_S, axis=0), STEP_S, axis=0)
    a = np.einsum("nji,nj->ni", np.array(rotations), dp + np.array([0.0, 0.0, 9.81]))
    imu = Imu(t_ns=t_ns[:-1] + 5 * MS, w=turned, a=a[:-1])
    frames = T0 + np.rint(np.arange(0.0, LONG_S - 0.01, 1 / 30) * S).astype(np.int64)
    return Given(poses=poses, imu=imu, frames=frames)


@pytest.fixture(scope="module")
def good() -> dict[str, Given]:
    hand = device(2)
    return {
        "chest": device(1),
        "hand": replace(hand, info=replace(hand.info, X_HE=pin.SE3.Identity(), gripper="tags")),
    }


def at(t_s: float) -> int:
    return T0 + round(t_s * S)


def marks(*, demo=DEMO, syncs=SYNCS) -> list[tuple[int, str]]:
    out = [(at(demo[0]), "begin"), (at(demo[1]), "end")]
    out += [(at(t), f"sync_{edge}") for span in syncs for t, edge in zip(span, ("begin", "end"), strict=True)]
    out += [
        (at(t), f"{clip}_{edge}") for clip in ("anchor", "lean") for t, edge in ((3.9, "begin"), (4.1, "end"))
    ]
    return out


def report(folder, given: dict[str, Given], *, marked=None, more=MEASURED) -> CaptureReport:
    setup = Setup(devices={role: each.info for role, each in given.items()}, more=more)
    with CaptureWriter(folder / "capture", setup) as out:
        for role, each in given.items():
            out.poses(role, each.poses)
            if each.imu is not None:
                out.imu(role, each.imu)
            for t_ns in each.frames.tolist():
                out.frame(role, t_ns)
        for t_ns, what in sorted(marks() if marked is None else marked):
            out.mark(t_ns, what, "test")
    return check_capture(RawCapture.open(folder / "capture"))


def names(found: CaptureReport) -> set[str]:
    return {*found.verdict.names, *(name for each in found.demonstrations for name in each.verdict.names)}


def spoilt(poses: Trajectory, start_s: float, stop_s: float, **what) -> Trajectory:
    """With other numbers in a stretch."""
    rows = (poses.t_ns >= at(start_s)) & (poses.t_ns < at(stop_s))
    p, q, tracking = poses.p.copy(), poses.q.copy(), poses.tracking.copy()
    p[rows] += what.get("p", 0.0)
    tracking[rows] = what.get("tracking", OK)
    if "freeze" in what:
        p[rows], q[rows] = p[rows][0], q[rows][0]
    return Trajectory(t_ns=poses.t_ns, p=p, q=q, tracking=tracking)


def later(given: Given, from_s: float, by_ns: int) -> Given:
    """Its clock is set forward."""

    def moved(t_ns: np.ndarray) -> np.ndarray:
        return t_ns + np.where(t_ns >= at(from_s), by_ns, 0)

    poses, imu = given.poses, given.imu
    return replace(
        given,
        poses=Trajectory(t_ns=moved(poses.t_ns), p=poses.p, q=poses.q, tracking=poses.tracking),
        imu=Imu(t_ns=moved(imu.t_ns), w=imu.w, a=imu.a),
        frames=moved(given.frames),
    )


def test_a_good_demonstration_has_nothing_against_it(tmp_path, good):
    found = report(tmp_path, good)
    assert names(found) == set()
    assert len(found.usable) == 1
    assert abs(found.clocks["hand"].offset_ns) < 2 * MS  # they turn almost alike, and both clocks are one


def poses_of(change):
    return lambda hand: replace(hand, poses=change(hand.poses))


JUMP = np.array([0.05, 0.0, 0.0])
HAND = {
    "tracking-lost": poses_of(lambda X: spoilt(X, 5.0, 5.4, tracking=LOST)),
    "tracking-limited": poses_of(lambda X: spoilt(X, 5.0, 6.0, tracking=LIMITED)),
    "pose-gap": poses_of(lambda X: X.taken((X.t_ns < at(5.0)) | (X.t_ns > at(5.3)))),
    "pose-jump": poses_of(lambda X: spoilt(X, 7.0, LONG_S, p=JUMP)),
    "pose-freeze": poses_of(lambda X: spoilt(X, 7.0, 7.7, freeze=True)),
    "too-fast": poses_of(lambda X: Trajectory(t_ns=X.t_ns, p=1000.0 * X.p, q=X.q, tracking=X.tracking)),
    "no-poses": poses_of(lambda X: X.taken(X.t_ns < at(9.0))),
    "quaternion-order": poses_of(
        lambda X: Trajectory(t_ns=X.t_ns, p=X.p, q=X.q[:, [1, 2, 3, 0]], tracking=X.tracking)
    ),
    "y-up": poses_of(lambda X: X.before(pin.SE3(pin.rpy.rpyToMatrix(-np.pi / 2, 0, 0), np.zeros(3)))),
    "camera-axes": poses_of(lambda X: X.then(pin.SE3(np.diag([1.0, -1.0, -1.0]), np.zeros(3)))),
    "pictures-dropped": lambda hand: replace(
        hand, frames=hand.frames[(np.arange(len(hand.frames)) % 5 > 0) | (hand.frames < at(4.0))]
    ),
    "clock-jump": lambda hand: later(hand, 7.0, 30 * MS),
    "time-units": lambda hand: replace(hand, frames=T0 + (hand.frames - T0) // 1000),
}  # fmt: skip


@pytest.mark.parametrize("name", HAND)
def test_what_is_wrong_with_a_hand_is_named(tmp_path, good, name):
    found = report(tmp_path, good | {"hand": HAND[name](good["hand"])})
    assert name in names(found)
    assert not found.usable or name == "tracking-limited"


def test_a_jump_outside_of_the_demonstrations_is_named_and_refuses_none_of_them(tmp_path, good):
    hand = good["hand"]
    jumped = replace(hand, poses=spoilt(hand.poses, 10.4, LONG_S, p=JUMP))
    found = report(tmp_path, good | {"hand": jumped})
    assert names(found) == {"odometry-jump"}
    assert len(found.usable) == 1
    assert "10.4 s into the recording" in str(found.verdict)


@pytest.mark.parametrize("by_ms", [0, 60])
def test_a_clock_that_is_declared_to_be_shared_and_is_not_is_named_by_the_sync_clips(tmp_path, good, by_ms):
    shifted = later(good["hand"], -1.0, by_ms * MS)
    found = report(tmp_path, good | {"hand": shifted}, more=MEASURED | {"clock": "shared"})
    assert names(found) == ({"clock-offset"} if by_ms else set())
    assert not by_ms or "+61 ms from it" in str(found.verdict)  # they turn almost alike


def test_a_chest_that_is_not_upright_may_be_a_hand(tmp_path, good):
    down = pin.SE3(pin.rpy.rpyToMatrix(-1.4, 0, 0), np.zeros(3))
    chest = replace(good["chest"], poses=good["chest"].poses.then(down), imu=None)
    found = report(tmp_path, good | {"chest": chest}).verdict
    assert not found.ok
    assert "chest and hand are not swapped" in str(found)


def test_quaternions_in_another_order_are_found_without_an_imu_by_a_chest_that_is_not_upright(tmp_path, good):
    turned = good["chest"].poses.before(pin.SE3(pin.rpy.rpyToMatrix(0, 0, 1.2), np.zeros(3)))
    swapped = Trajectory(t_ns=turned.t_ns, p=turned.p, q=turned.q[:, [1, 2, 3, 0]], tracking=turned.tracking)
    chest = replace(good["chest"], poses=swapped, imu=None)
    assert "quaternion-order" in names(report(tmp_path, good | {"chest": chest}))


def test_an_imu_that_sits_two_degrees_off_is_named(tmp_path, good):
    R = pin.rpy.rpyToMatrix(0.0, np.deg2rad(2.0), 0.0)
    hand = good["hand"]
    turned = replace(hand, imu=Imu(t_ns=hand.imu.t_ns, w=hand.imu.w @ R, a=hand.imu.a @ R))
    assert "imu-turned" in names(report(tmp_path, good | {"hand": turned}))


def test_an_imu_that_says_the_same_all_the_time_is_not_called_turned(good):
    hand, rng = good["hand"], np.random.default_rng(0)
    for _ in range(20):  # some have a variance of -1e-34 along an axis
        still = np.tile(rng.normal(0.0, 0.02, 3), (len(hand.imu), 1))
        assert imu_turn("hand", hand.poses, Imu(t_ns=hand.imu.t_ns, w=still, a=hand.imu.a)) == []


@pytest.mark.parametrize(
    ("marked", "name"),
    [
        ([*marks(), (at(14.8), "begin")], "marks-unpaired"),
        (marks(demo=(5.0, 5.4)), "too-short"),
        (marks(syncs=SYNCS[:1]), "one-sync"),
        (marks(syncs=()), "clocks-not-joined"),
        ([], "no-demonstrations"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_wrong_with_marks_is_named(tmp_path, good, marked, name):
    assert name in names(report(tmp_path, good, marked=marked))


def test_a_hand_on_the_wrong_side_is_named(tmp_path, good):
    given = {"chest": good["chest"], "right_hand": good["hand"]}
    with CaptureWriter(
        tmp_path / "a", Setup(devices={role: each.info for role, each in given.items()})
    ) as out:
        for role, each in given.items():
            out.poses(role, each.poses)
            out.imu(role, each.imu)
        for t_ns, what in sorted(marks()):
            out.mark(t_ns, what, "test")
    X_WcC = good["chest"].poses[0]
    for place, name in (([-0.3, 0.1, 0.4], "sides-swapped"), ([0.0, 0.0, -0.5], "hand-out-of-reach")):
        anchor = pin.SE3(np.eye(3), X_WcC.act(np.array(place)) - good["hand"].poses.p.mean(axis=0))
        found = check_capture(RawCapture.open(tmp_path / "a"), anchors={"right_hand": anchor})
        assert name in names(found)


def test_what_is_wrong_with_one_hand_is_not_held_against_the_other(tmp_path, good):
    hand = good["hand"]
    order = Trajectory(
        t_ns=hand.poses.t_ns, p=hand.poses.p, q=hand.poses.q[:, [1, 2, 3, 0]], tracking=hand.poses.tracking
    )
    given = {"chest": good["chest"], "right_hand": hand, "left_hand": replace(hand, poses=order)}
    assert "quaternion-order" in names(report(tmp_path, given))
    capture = RawCapture.open(tmp_path / "capture")
    assert not check_capture(capture, hand="left_hand").usable
    assert len(check_capture(capture, hand="right_hand").usable) == 1


def test_a_demonstration_without_poses_spoils_no_other(tmp_path, good):
    hand = good["hand"]
    gap = (hand.poses.t_ns < at(6.0)) | (hand.poses.t_ns > at(8.0))
    marked = [mark for mark in marks() if mark[1] not in ("begin", "end")]
    for begin, end in ((4.2, 5.5), (6.2, 7.8), (8.2, 10.0)):
        marked += [(at(begin), "begin"), (at(end), "end")]
    found = report(tmp_path, good | {"hand": replace(hand, poses=hand.poses.taken(gap))}, marked=marked)
    assert [each.verdict.ok for each in found.demonstrations] == [True, False, True]
    assert "pose-gap" in found.demonstrations[1].verdict.names


@pytest.mark.parametrize("number", [3, 5])
def test_a_handful_of_poses_is_no_demonstration(tmp_path, good, number):
    poses = good["hand"].poses
    rows = np.isin(np.arange(len(poses)), np.linspace(0, len(poses) - 1, number).astype(int))
    found = report(tmp_path, good | {"hand": replace(good["hand"], poses=poses.taken(rows))})
    assert "pose-gap" in names(found)
    assert not found.usable


def test_what_labels_will_ask_for_is_said_while_it_can_still_be_given(tmp_path, good):
    bare = replace(good["hand"], info=replace(good["hand"].info, X_HE=None, gripper=None))
    found = report(tmp_path, good | {"hand": bare}, more={})
    assert {"no-floor", "no-tcp", "no-width"} <= set(found.verdict.names)
    assert len(found.usable) == 1  # all of it can be given later


@pytest.mark.parametrize("text", ["", "t_ns,width_m\n"])
def test_a_gripper_s_file_without_rows_is_named(tmp_path, good, text):
    info = replace(good["hand"].info, gripper="sensor")
    report(tmp_path, good | {"hand": replace(good["hand"], info=info)})
    (tmp_path / "capture" / "hand" / "gripper.csv").write_text(text)
    found = check_capture(RawCapture.open(tmp_path / "capture"), with_checksums=False)
    assert "no-gripper" in names(found)


def test_a_camera_s_file_of_another_size_or_form_is_named(tmp_path, good):
    for camera, name in (
        (CAMERA | {"height": 96, "width": 128}, "camera-of-another-size"),
        ({"model": "x"}, "camera-unreadable"),
    ):
        info = replace(good["hand"].info, size=(48, 64), camera=camera)
        found = report(tmp_path / name, good | {"hand": replace(good["hand"], info=info)})
        assert name in found.verdict.names
        assert not found.usable


def test_one_demonstration_may_begin_when_the_last_one_ends(tmp_path, good):
    edges = [(at(7.0), "begin"), (at(7.0), "end"), (at(4.2), "begin"), (at(10.0), "end")]
    found = report(tmp_path, good, marked=[*(m for m in marks() if "_" in m[1]), *edges])
    assert [each.verdict.ok for each in found.demonstrations] == [True, True]
    assert "marks-unpaired" not in found.verdict.names
