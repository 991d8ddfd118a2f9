"""Checks a device's odometry and clock over the whole recording: units of time, jumps, scale, a moved board.

time_units        spans of its streams that differ by a factor of a thousand
clock_offset      a clock that is declared to be shared, and the sync clips show an offset
moved_in_clip     from some moment in an anchor clip on, the board is elsewhere
moved_between     between two anchor clips it is elsewhere: by both devices, or by one
scales            the board is larger or smaller by its odometry than by the other's, or than before
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pinocchio as pin

from calibration.capture.raw import Device, RawCapture
from calibration.capture.stretch import Limits, jumps_of
from calibration.clocks import ClockFit
from calibration.trajectory import Trajectory
from calibration.verdict import Reason
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError

LEAST_VIEWS = 4
"""Views of the board before and after a move."""
LEAST_MOVE_M = 0.025
_TIMES_SCATTER = 4.0
_SAME_MOVE = 0.4
"""Share by which the moves that two devices saw may differ and still be one move of the board."""
WALK_M = 0.005
"""Drift of odometry over the first metre, per axis; see `labels.values.Drift`."""
MOST_SCALE, WRONG_SCALE = 0.03, 0.05
"""Relative scale errors of odometry that are reported, and refused; intrinsics explain 1 to 2 %."""
MOST_CLOCK_NS = 15_000_000


def time_units(device: Device) -> list[Reason]:
    """Check that poses, images, IMU and widths of a device last equally long."""
    streams = {"poses": device.poses.t_ns, "images": device.frames.t_ns}
    streams |= {} if device.imu is None else {"IMU": device.imu.t_ns}
    streams |= {} if device.gripper is None else {"widths": device.gripper.t_ns}
    lasts = {name: float(t_ns[-1] - t_ns[0]) for name, t_ns in streams.items() if len(t_ns) > 10}
    for name, last in lasts.items():
        if name == "poses" or last <= 0.0 or lasts.get("poses", 0.0) <= 0.0:
            continue
        power = float(np.log10(last / lasts["poses"])) / 3.0
        if abs(power) < 0.9 or abs(power - round(power)) > 0.1:
            continue
        short, long = ("poses", name) if power > 0 else (name, "poses")
        return [
            Reason(
                name="time-units",
                what=f"{device.role}: its {short} last {lasts[short] / NS_PER_S:.3g} s and its {long} "
                f"{lasts[long] / NS_PER_S:.3g} s, a factor of 10^{3 * abs(round(power))}: the times of "
                "one of them are in another unit.",
                do="Name the column of times by its unit (t_ns, t_us, t_ms or t_s), and import again.",
            )
        ]
    return []


def clock_offset(capture: RawCapture, fit: Callable[[RawCapture, str], ClockFit]) -> list[Reason]:
    """Check by the sync clips, where there are any, that devices share a clock as declared."""
    if not capture.clips("sync"):
        return []
    out = []
    for role in (role for role in capture.devices if role != "chest" and "chest" in capture.devices):
        try:
            found = fit(capture, role)
        except InvalidValueError:
            continue  # they were not turned together, or a file is unreadable: reported elsewhere
        if abs(found.offset_ns) > max(MOST_CLOCK_NS, 4 * found.sigma_ns):
            out.append(
                Reason(
                    name="clock-offset",
                    what=f"{role}: its clock is declared to be the chest's, and by the sync clips it is "
                    f"{found.offset_ns / 1e6:+.0f} ms from it (sigma {found.sigma_ns / 1e6:.1f} ms).",
                    do="Leave out --shared-clock: the sync clips then join the clocks.",
                )
            )
    return out


def jumps_outside(device: Device, spans: Sequence[tuple[int, int]], limits: Limits) -> list[Reason]:
    """Report jumps outside of the demonstrations; spans: theirs, in order, on the device's clock."""
    poses = device.poses
    start_ns = int(poses.t_ns[0])
    edges = [start_ns, *(t for span in spans for t in span), int(poses.t_ns[-1]) + 1]
    found = []
    for begin_ns, end_ns in zip(edges[::2], edges[1::2], strict=True):
        rows = slice(*np.searchsorted(poses.t_ns, (begin_ns, end_ns)))
        if rows.stop - rows.start > 5:
            found += jumps_of(poses.between(begin_ns, end_ns), limits)
    if not found:
        return []
    worst = max(found, key=lambda each: each.size)
    return [
        Reason(
            name="odometry-jump",
            what=f"{device.role}: its pose jumps by {1e3 * worst.metres:.0f} mm and "
            f"{np.degrees(worst.radians):.1f} degrees, {(worst.t_ns - start_ns) / NS_PER_S:.1f} s into the "
            f"recording and outside of the demonstrations ({len(found)} such steps).",
            do="Show the board to both cameras after it: an anchor before it does not hold any longer.",
            is_fatal=False,
        )
    ]


def switch(t_ns: np.ndarray, p: np.ndarray) -> tuple[int, np.ndarray] | None:
    """(first row after it, the move [m]) where positions (N, 3) change once for good; None: they do not."""
    if len(p) < 2 * LEAST_VIEWS:
        return None
    best: tuple[float, int] | None = None
    for i in range(LEAST_VIEWS, len(p) - LEAST_VIEWS + 1):
        cost = sum(float(_far(part).sum()) for part in (p[:i], p[i:]))
        best = min(best or (np.inf, 0), (cost, i))
    assert best is not None
    i = best[1]
    move = np.median(p[i:], axis=0) - np.median(p[:i], axis=0)
    scatter = float(np.median(np.concatenate([_far(p[:i]), _far(p[i:])])))
    if float(np.linalg.norm(move)) < max(LEAST_MOVE_M, _TIMES_SCATTER * scatter):
        return None
    return i, move


def _far(p: np.ndarray) -> np.ndarray:
    far: np.ndarray = np.linalg.norm(p - np.median(p, axis=0), axis=1)
    return far


def moved_in_clip(
    role: str, clip: int, t_ns: np.ndarray, p: np.ndarray, poses: Trajectory, begin_ns: int
) -> Reason | None:
    """Report that the board is elsewhere from some moment of a clip on; p (N, 3): in the device's world."""
    found = switch(t_ns, p)
    if found is None:
        return None
    i, move = found
    between = poses.between(int(t_ns[i - 1]) - NS_PER_S // 5, int(t_ns[i]) + NS_PER_S // 5)
    has_jumped = bool(jumps_of(between, Limits()))
    where = (
        f"{role}: from {(int(t_ns[i]) - begin_ns) / NS_PER_S:.1f} s into anchor clip {clip + 1} on, the board"
    )
    millimetres = f"{1e3 * float(np.linalg.norm(move)):.0f} mm"
    if has_jumped:
        return Reason(
            name="odometry-jump",
            what=f"{where} is {millimetres} from where it was, because the pose jumps at that moment.",
            do="Mark a clip without the jump, or show the board again.",
        )
    return Reason(
        name="board-moved",
        what=f"{where} is {millimetres} from where it was.",
        do="Fix the board, and show it again; or mark only the part of the clip before it was moved.",
    )


def moved_between(
    boards: Mapping[str, Mapping[int, tuple[int, pin.SE3]]],
    devices: Mapping[str, Device],
    joined: Mapping[str, pin.SE3],
) -> list[Reason]:
    """Compare the board's position in later anchor clips with the first one.

    boards: role -> clip -> (time on its clock [ns], the board in its world). joined: X_WcWh by role.
    """
    moves = {role: _moves(of_clip, devices[role]) for role, of_clip in boards.items()}
    out: list[Reason] = []
    for role, of_hand in moves.items():
        for clip in sorted(set(of_hand) & set(moves.get("chest", {})) if role in joined else ()):
            by_chest, by_hand = moves["chest"][clip], of_hand[clip]
            turned = joined[role].rotation @ by_hand.metres
            far_m = min(np.linalg.norm(by_chest.metres), np.linalg.norm(turned))
            if far_m > LEAST_MOVE_M and np.linalg.norm(by_chest.metres - turned) < _SAME_MOVE * far_m:
                out.append(
                    Reason(
                        name="board-moved",
                        what=f"by {role} and chest alike, the board in anchor clip {clip + 1} is "
                        f"{1e3 * far_m:.0f} mm from where it was in the first one.",
                        do="Labels take it for fixed: mark anchor clips of one place only, or record again.",
                    )
                )
                return out
    for role, of_clip in moves.items():
        far = [each for each in of_clip.values() if each.is_far]
        if far:
            out.append(_drifted(role, far[-1], moves))
    return out


class _Move:
    """How far the board is from where it was in the first clip, by one device's odometry."""

    def __init__(self, clip: int, metres: np.ndarray, path_m: float) -> None:
        self.clip, self.metres, self.path_m = clip, metres, path_m
        self.usual_m = float(np.sqrt(3.0 * WALK_M**2 * path_m + 0.01**2))
        self.is_far = float(np.linalg.norm(metres)) > 4.0 * self.usual_m


def _moves(of_clip: Mapping[int, tuple[int, pin.SE3]], device: Device) -> dict[int, _Move]:
    clips = sorted(of_clip)
    if len(clips) < 2:
        return {}
    start_ns, first = of_clip[clips[0]]
    out = {}
    for clip in clips[1:]:
        t_ns, X_WB = of_clip[clip]
        grid = np.arange(start_ns, t_ns, NS_PER_S // 5)
        p = device.poses.sampled(np.clip(grid, device.poses.t_ns[0], device.poses.t_ns[-1])).p
        path_m = float(np.linalg.norm(np.diff(p, axis=0), axis=1).sum())
        out[clip] = _Move(clip, X_WB.translation - first.translation, path_m)
    return out


def _drifted(role: str, move: _Move, moves: Mapping[str, Mapping[int, _Move]]) -> Reason:
    others = ", ".join(
        f"{1e3 * np.linalg.norm(of_clip[move.clip].metres):.0f} mm by {other}"
        for other, of_clip in moves.items()
        if other != role and move.clip in of_clip
    )
    return Reason(
        name="odometry-drift",
        what=f"{role}: by its odometry the board in anchor clip {move.clip + 1} is "
        f"{1e3 * np.linalg.norm(move.metres):.0f} mm from where it was in the first one, after "
        f"{move.path_m:.0f} m of path; {1e3 * move.usual_m:.0f} mm are usual"
        + (f" ({others})." if others else "."),
        do="Its tracking drifted or jumped, or the board was moved between the looks of the two devices: "
        "anchor more often, and keep the board fixed.",
        is_fatal=False,
    )


def scales(found: Mapping[str, Sequence[float]]) -> list[Reason]:
    """Check the size of the board by each device's odometry over its declared one, role -> clip by clip."""
    out = []
    for role, each in found.items():
        if len(each) > 1 and (drift := abs(float(np.log(each[-1] / each[0])))) > MOST_SCALE:
            out.append(
                Reason(
                    name="scale-drift",
                    what=f"{role}: by the board, the scale of its odometry is {each[0]:.3f} in the first "
                    f"anchor clip and {each[-1]:.3f} in the last.",
                    do="Use odometry with an IMU or depth, whose scale is metric: a camera's alone drifts.",
                    is_fatal=drift > WRONG_SCALE,
                )
            )
    middle = {role: float(np.median(each)) for role, each in found.items() if len(each)}
    drifting = {reason.what.partition(":")[0] for reason in out}
    for role, scale in middle.items():
        others = [each for other, each in middle.items() if other != role and other not in drifting]
        if role in drifting or not others or abs(np.log(scale)) < abs(np.log(others[0])):
            continue
        off = abs(float(np.log(scale / others[0])))
        if off > MOST_SCALE:
            out.append(
                Reason(
                    name="odometry-scale",
                    what=f"{role}: by the board, the scale of its odometry is {scale:.3f}, and "
                    f"{others[0]:.3f} by the other device.",
                    do=f"Divide its positions by {scale:.3f}, or export poses of metric scale; if they are, "
                    "the camera file belongs to another camera.",
                    is_fatal=off > WRONG_SCALE,
                )
            )
    return out
