"""Finds faults in one device's data over a span of time: `look`. Pure; all limits are in `Limits`."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calibration.capture.raw import Device
from calibration.trajectory import LIMITED, LOST, Trajectory
from calibration.verdict import Reason
from robot_runtime.core.values.action import NS_PER_S


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits beyond which a demonstration is refused; people move slower, and working tracking is better."""

    least_s: float = 1.0
    """Shortest demonstration."""
    most_lost_s: float = 0.1
    """Longest contiguous loss."""
    most_limited: float = 0.05
    """Share of poses above which it is reported; four times as many are fatal."""
    most_gap_s: float = 0.1
    """Longest time between poses."""
    hand_speed: float = 5.0
    """[m/s]."""
    chest_speed: float = 3.0
    """[m/s]."""
    jump_m: float = 0.015
    jump_rad: float = np.deg2rad(2.0)
    """How far a pose may differ from the motion before and after it, beyond what people accelerate by."""
    acceleration: float = 30.0
    """Acceleration of a hand [m/s^2]; sets what counts as a jump where poses are far apart."""
    turn_acceleration: float = 300.0
    """[rad/s^2]."""
    freeze_s: float = 0.5
    """Longest run of poses that are the same to the last bit."""
    most_dropped: float = 0.02
    """Largest share of missing images."""
    most_picture_gap_s: float = 0.2
    least_tags: float = 0.9
    """Share of a hand's images with the gripper's tags below which it is reported; below 0.6 is fatal."""


def look(device: Device, start_ns: int, stop_ns: int, limits: Limits) -> list[Reason]:
    """Find faults of a device in [start, stop).

    start_ns, stop_ns: on this device's clock.
    InvalidValueError: one of its files is unreadable.
    """
    name, poses = device.role, device.poses
    late_s = max(poses.t_ns[0] - start_ns, stop_ns - 1 - poses.t_ns[-1]) / NS_PER_S
    if late_s > limits.most_gap_s:
        return [
            Reason(
                name="no-poses",
                what=f"{name}: its poses are missing for {late_s:.1f} s of it.",
                do="Begin after both devices track, and end before one is stopped; or its clock is not "
                "joined.",
            )
        ]
    at = poses.t_ns[slice(*np.searchsorted(poses.t_ns, (start_ns, stop_ns)))]
    gap = [*_pose_gap(name, at, start_ns, stop_ns, limits)]
    if len(at) < 2:
        return gap
    inside = poses.between(start_ns, stop_ns)
    return [
        *gap,
        *_tracking(name, inside, start_ns, limits),
        *_speeds(name, inside, start_ns, limits),
        *_jumps(name, inside, start_ns, limits),
        *_freezes(name, inside, start_ns, limits),
        *_dropped(device, start_ns, stop_ns, limits),
        *_gripper(device, start_ns, stop_ns, limits),
    ]


def clock_jumps(device: Device) -> list[Reason]:
    """Find moments at which all streams of a device pause together: its clock was set, no data was lost."""
    streams = [device.poses.t_ns]
    streams += [device.imu.t_ns] if device.imu is not None else []
    streams += [device.frames.t_ns] if len(device.frames) else []
    streams = [t_ns for t_ns in streams if len(t_ns) > 10]
    if len(streams) < 2:
        return []
    jumps = []
    quickest = min(streams, key=lambda t_ns: float(np.median(np.diff(t_ns))))
    for start_ns, stop_ns in _gaps(quickest, 2.5):
        if all(_pauses(t_ns, start_ns, stop_ns) for t_ns in streams):
            jumps.append((start_ns, (stop_ns - start_ns - int(np.median(np.diff(quickest)))) / 1e6))
    judged = [(t_ns, by_ms, _has_passed(device.poses, t_ns)) for t_ns, by_ms in jumps]
    wrong = [(t_ns, by_ms) for t_ns, by_ms, has_passed in judged if not has_passed]
    if not wrong:
        return []
    at = ", ".join(f"{_s(t, int(quickest[0]))} ({by:+.0f} ms)" for t, by in wrong[:5])
    return [
        Reason(
            name="clock-jump",
            what=f"{device.role}: all its streams pause together, {len(wrong)} times: at {at}.",
            do="Its clock was set while it recorded: turn automatic time off, and record again. Or it hung.",
            is_fatal=any(has_passed is False for _, _, has_passed in judged),
        )
    ]


def _has_passed(poses: Trajectory, start_ns: int) -> bool | None:
    """Whether a device moved on during a pause as if the time had passed: it hung, and its clock is right.
    None: it hardly moved, so this is undetermined."""
    i = int(np.clip(np.searchsorted(poses.t_ns, start_ns, side="right"), 3, len(poses) - 3))
    i = i - 1 + int(np.argmax(np.diff(poses.t_ns[i - 2 : i + 2])))  # the pause: from i - 1 to i
    gap_s = float(poses.t_ns[i] - poses.t_ns[i - 1]) / NS_PER_S
    _, turning = poses.angular_speed()
    _, moving = poses.speed()
    near = [k for k in (i - 3, i - 2, i, i + 1) if 0 <= k < len(turning) and k != i - 1]
    shares = [
        float(values[i - 1] / values[near].mean())
        for values, least in ((turning, 0.02), (moving, 0.01))
        if values[near].mean() * gap_s > least
    ]
    return None if not shares else max(shares) > 0.5


def _pose_gap(name: str, at: np.ndarray, start_ns: int, stop_ns: int, limits: Limits) -> Iterator[Reason]:
    """Check the longest time without a pose, including the time before the first and after the last one: a
    stretch with hardly any poses has no two neighbours to compare."""
    gaps_s = np.diff(np.concatenate([[start_ns], at, [stop_ns]])) / NS_PER_S
    i = int(np.argmax(gaps_s))
    into_s = float(gaps_s[:i].sum())
    if gaps_s[i] > limits.most_gap_s or len(at) < 2:
        yield Reason(
            name="pose-gap",
            what=f"{name}: no poses for {gaps_s[i]:.2f} s, {into_s:.1f} s into it, {len(at)} in total.",
            do="Demonstrate again; if that happens often, the device is too hot or too busy.",
        )


def _tracking(name: str, poses: Trajectory, start_ns: int, limits: Limits) -> Iterator[Reason]:
    for first, last in _runs(poses.tracking == LOST):
        lost_s = (poses.t_ns[min(last + 1, len(poses) - 1)] - poses.t_ns[max(first - 1, 0)]) / NS_PER_S
        if lost_s > limits.most_lost_s:
            yield Reason(
                name="tracking-lost",
                what=f"{name}: tracking was lost for {lost_s:.1f} s, {_s(poses.t_ns[first], start_ns)} into "
                "it.",
                do="Demonstrate again, with slower turns, more light, and texture in view.",
            )
            break
    limited = float((poses.tracking == LIMITED).mean())
    if limited > limits.most_limited:
        yield Reason(
            name="tracking-limited",
            what=f"{name}: tracking was limited in {100 * limited:.0f} % of its poses.",
            do="Add light, turn slower, and clean the lens.",
            is_fatal=limited > 4.0 * limits.most_limited,
        )


def _speeds(name: str, poses: Trajectory, start_ns: int, limits: Limits) -> Iterator[Reason]:
    known = _known(poses)
    if len(known) < 3:
        return
    most = limits.chest_speed if name == "chest" else limits.hand_speed
    t_ns, speed = known.speed()
    if (fast := speed > most).mean() > 0.002 or fast.sum() > 3:
        i = int(np.argmax(speed))
        yield Reason(
            name="too-fast",
            what=f"{name}: it moves at {speed[i]:.1f} m/s, {_s(t_ns[i], start_ns)} into it; people stay "
            "below "
            f"{most:g}.",
            do="Check that its positions are in metres and its times in nanoseconds; else tracking slipped: "
            "again.",
        )


@dataclass(frozen=True, kw_only=True)
class PoseJump:
    """A step between poses that neither the motion before nor the motion after explains."""

    t_ns: int
    metres: float
    radians: float
    size: float
    """Its size as a multiple of what is allowed."""


def jumps_of(poses: Trajectory, limits: Limits) -> list[PoseJump]:
    """Find the jumps of a trajectory, in order."""
    known = _known(poses)
    if len(known) < 5:
        return []
    dt_s = np.diff(known.t_ns) / NS_PER_S
    v = np.diff(known.p, axis=0) / dt_s[:, None]
    around = 0.5 * (v[:-2] + v[2:])
    off = np.linalg.norm((v[1:-1] - around) * dt_s[1:-1, None], axis=1)
    near = np.maximum(np.maximum(dt_s[:-2], dt_s[2:]), dt_s[1:-1])
    allowed = limits.jump_m + limits.acceleration * near * dt_s[1:-1]
    _, w = known.angular_speed()
    turned = (w[1:-1] - np.maximum(w[:-2], w[2:])) * dt_s[1:-1]
    allowed_turn = limits.jump_rad + limits.turn_acceleration * near * dt_s[1:-1]
    return [
        PoseJump(
            t_ns=int(known.t_ns[i + 1]),
            metres=float(off[i]),
            radians=max(0.0, float(turned[i])),
            size=float(off[i] / allowed[i] + turned[i] / allowed_turn[i]),
        )
        for i in np.flatnonzero((off > allowed) | (turned > allowed_turn))
    ]


def _jumps(name: str, poses: Trajectory, start_ns: int, limits: Limits) -> Iterator[Reason]:
    """Report steps that neither the motion before nor the motion after explains."""
    if not (found := jumps_of(poses, limits)):
        return
    worst = max(found, key=lambda each: each.size)
    yield Reason(
        name="pose-jump",
        what=f"{name}: its pose jumps by {1e3 * worst.metres:.0f} mm and {np.degrees(worst.radians):.1f} "
        f"degrees, {_s(worst.t_ns, start_ns)} into it ({len(found)} such steps).",
        do="Tracking relocalized in its map: walk once through the whole area, then demonstrate again.",
    )


def _freezes(name: str, poses: Trajectory, start_ns: int, limits: Limits) -> Iterator[Reason]:
    same = (np.diff(poses.p, axis=0) == 0.0).all(axis=1) & (np.diff(poses.q, axis=0) == 0.0).all(axis=1)
    same &= poses.tracking[1:] != LOST
    for first, last in _runs(same):
        long_s = (poses.t_ns[last + 1] - poses.t_ns[first]) / NS_PER_S
        if long_s > limits.freeze_s:
            yield Reason(
                name="pose-freeze",
                what=f"{name}: its pose is the same to the last bit for {long_s:.1f} s, "
                f"{_s(poses.t_ns[first], start_ns)} into it.",
                do="Tracking hung: restart its app, and demonstrate again.",
            )
            return


def _dropped(device: Device, start_ns: int, stop_ns: int, limits: Limits) -> Iterator[Reason]:
    rows = device.frames.span(start_ns, stop_ns)
    if not len(device.frames):
        return
    t_ns = device.frames.t_ns[rows.start : rows.stop]
    if len(t_ns) < 3:
        yield Reason(
            name="no-pictures",
            what=f"{device.role}: {len(t_ns)} images were taken in it.",
            do="Begin when its camera runs; if it did, its clock is not joined.",
        )
        return
    gaps_s = np.diff(t_ns) / NS_PER_S
    period_s = 1.0 / device.info.fps if device.info.fps else float(np.median(gaps_s))
    missing = int(np.maximum(np.rint(gaps_s / period_s) - 1, 0).sum())
    share = missing / (missing + len(t_ns))
    if share > limits.most_dropped or gaps_s.max() > limits.most_picture_gap_s:
        i = int(np.argmax(gaps_s))
        yield Reason(
            name="pictures-dropped",
            what=f"{device.role}: {missing} of {missing + len(t_ns)} images are missing, {gaps_s[i]:.2f} "
            "s in "
            f"one piece, {_s(t_ns[i], start_ns)} into it.",
            do="Use a faster card or disk, fewer pixels, or a cooler device, and demonstrate again.",
            is_fatal=share > 5.0 * limits.most_dropped or gaps_s.max() > limits.most_picture_gap_s,
        )


def _gripper(device: Device, start_ns: int, stop_ns: int, limits: Limits) -> Iterator[Reason]:
    if device.role == "chest" or device.info.gripper is None:
        return
    if device.info.gripper == "tags":
        tags = device.tags
        rows = device.frames.span(start_ns, stop_ns)
        if tags is None or not len(rows):
            return  # no detector has run yet
        seen = np.intersect1d(tags.t_ns, device.frames.t_ns[rows.start : rows.stop])
        share = len(seen) / len(rows)
        if share < limits.least_tags:
            yield Reason(
                name="gripper-tags",
                what=f"{device.role}: the gripper's tags are seen in {100 * share:.0f} % of its images only.",
                do="Clean the tags, light them, and keep them in view.",
                is_fatal=share < 0.6,
            )
        return
    if device.gripper is None or not len(device.gripper):
        yield Reason(
            name="no-gripper",
            what=f"{device.role}: its gripper ({device.info.gripper}) is declared as measured, and there is "
            "nothing.",
            do="Check that gripper's cable or stream.",
        )
        return
    t_ns = device.gripper.t_ns
    if t_ns[0] > start_ns + NS_PER_S or t_ns[-1] < stop_ns - NS_PER_S:
        yield Reason(
            name="no-gripper",
            what=f"{device.role}: its gripper was not measured through all of it.",
            do="Check that gripper's cable or stream, and demonstrate again.",
        )


def _known(poses: Trajectory) -> Trajectory:
    known = poses.tracking != LOST
    return poses if known.all() or not known.any() else poses.taken(known)


def _gaps(t_ns: np.ndarray, times: float) -> list[tuple[int, int]]:
    """(before, after) indices of pauses longer than that many periods."""
    wide = np.diff(t_ns)
    rows = np.flatnonzero(wide > times * np.median(wide))
    return [(int(t_ns[i]), int(t_ns[i + 1])) for i in rows]


def _pauses(t_ns: np.ndarray, start_ns: int, stop_ns: int) -> bool:
    """Whether a stream's period is longer by about that pause across it."""
    i = int(np.searchsorted(t_ns, start_ns, side="right"))
    near = np.diff(t_ns[max(0, i - 1) : i + 2])
    longer = near - float(np.median(np.diff(t_ns)))
    return bool(near.size) and float(longer.max()) > 0.6 * (stop_ns - start_ns)


def _runs(which: np.ndarray) -> list[tuple[int, int]]:
    """(first, last) index of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], which, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _s(t_ns: int | np.integer, start_ns: int) -> str:
    return f"{(int(t_ns) - start_ns) / NS_PER_S:.1f} s"
