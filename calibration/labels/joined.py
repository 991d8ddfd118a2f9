"""Both devices of a capture in one world and on one clock: `Joined`.

chest.poses  (its world, its clock)  ─────────────────► graph ─► X_WC(t)
hand.poses   (its world, its clock) ─ clock ─ anchor ─►       ─► X_WH(t), and covariances of both

30 poses a second and a chest that nods at 1.8 Hz: linear interpolation between two is 0.4 mm and 0.07 degrees
off, a cubic through four (`sampled`) a hundredth of that. The stance gives the height of the floor, the
upright orientation, and the pivot of leaning.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pinocchio as pin
from scipy.spatial.transform import Rotation

from calibration.camera import CameraModel
from calibration.capture.raw import Device, RawCapture
from calibration.labels.base import Pivot, assumed_pivot, fit_pivot, neutral_rotation
from calibration.labels.closure import Tie, anchor_reasons, closure_reasons, note
from calibration.labels.graph import Corrected, correct, jumps
from calibration.labels.sightings import TagSights
from calibration.labels.values import HandClock, LabelConfig
from calibration.trajectory import LONGEST_GAP_NS, LOST, Trajectory
from calibration.verdict import Reason
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.transforms import pose_from_numbers
from robot_runtime.errors import InvalidValueError


def sampled(path: Trajectory, t_ns: np.ndarray, breaks_ns: np.ndarray | None = None) -> Trajectory:
    """As `Trajectory.sampled`, but by cubics where four neighbouring poses are contiguous.

    breaks_ns: times at which the odometry jumped; no cubic spans one.
    """
    linear = path.sampled(t_ns)
    n = len(path)
    if n < 4 or not len(t_ns):
        return linear
    i = np.clip(np.searchsorted(path.t_ns, t_ns, side="right") - 2, 0, n - 4)
    rows = i[:, None] + np.arange(4)
    times = (path.t_ns[rows] - path.t_ns[i + 1][:, None]) / 1e9
    at = (t_ns - path.t_ns[i + 1]) / 1e9
    weights = np.ones((len(t_ns), 4))
    for a in range(4):
        for b in range(4):
            if a != b:
                weights[:, a] *= (at - times[:, b]) / (times[:, a] - times[:, b])
    p = (weights[:, :, None] * path.p[rows]).sum(axis=1)
    turns = Rotation.from_quat(path.q, scalar_first=True)
    near = turns[i + 1]
    vectors = np.stack([(near.inv() * turns[rows[:, a]]).as_rotvec() for a in range(4)], axis=1)
    turn = near * Rotation.from_rotvec((weights[:, :, None] * vectors).sum(axis=1))
    q = turn.as_quat(scalar_first=True)
    q *= np.where((q * linear.q).sum(axis=1, keepdims=True) < 0.0, -1.0, 1.0)
    is_whole = np.diff(path.t_ns[rows], axis=1).max(axis=1) <= LONGEST_GAP_NS
    is_whole &= path.tracking[rows].min(axis=1) > LOST
    is_whole &= (t_ns >= path.t_ns[rows[:, 0]]) & (t_ns <= path.t_ns[rows[:, 3]])
    if breaks_ns is not None:
        crossed = np.searchsorted(breaks_ns, path.t_ns[rows[:, 3]], side="right")
        is_whole &= crossed == np.searchsorted(breaks_ns, path.t_ns[rows[:, 0]], side="right")
    keep = is_whole[:, None]
    return Trajectory(
        t_ns=linear.t_ns,
        p=np.where(keep, p, linear.p),
        q=np.where(keep, q, linear.q),
        tracking=linear.tracking,
    )


def upright(capture: RawCapture, chest: Trajectory) -> Trajectory:
    """Path of the chest in the demonstrations, in most of which the person is upright."""
    keep = np.zeros(len(chest), bool)
    for each in capture.demonstrations():
        keep |= (chest.t_ns >= each.begin_ns) & (chest.t_ns < each.end_ns)
    keep &= chest.tracking != LOST
    return chest.taken(keep) if keep.any() else chest


def floor_of(
    capture: RawCapture, config: LabelConfig, ties: Sequence[Tie], level: Trajectory
) -> tuple[float, list[Reason]]:
    """Height of the floor in the chest's world, from the board or from the chest's height."""
    more = capture.setup.more
    by_board = config.board_height_m if config.board_height_m is not None else more.get("board_height_m")
    by_chest = config.chest_height_m if config.chest_height_m is not None else more.get("chest_height_m")
    for name, value in (("board_height_m", by_board), ("chest_height_m", by_chest)):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and -0.5 < value < 3.0):
            raise InvalidValueError(
                f"{capture.path / 'capture.json'}: expected {name} from -0.5 to 3 m above the floor, got "
                f"{value!r:.40}: give --{name.replace('_', '-')}"
            )
    tall = float(np.quantile(level.p[:, 2], 0.8))
    if by_board is not None:
        board = ties[0].X_WcB
        slope = float(np.rad2deg(np.arccos(np.clip(abs(board.rotation[2, 2]), 0.0, 1.0))))
        floor = float(board.translation[2]) - float(by_board)
        reasons = []
        if slope > 5.0 and by_board == 0.0:
            reasons.append(
                note(
                    "board-not-flat",
                    f"The board on the floor is tilted by {slope:.1f} degrees.",
                    "Lay it flat, or give its true --board-height-m.",
                )
            )
        if by_chest is not None and abs(tall - floor - float(by_chest)) > 0.15:
            reasons.append(
                note(
                    "heights-disagree",
                    f"By the board's height the chest is {tall - floor:.2f} m above the floor, "
                    f"by its own {float(by_chest):.2f} m.",
                    "Measure both again.",
                )
            )
        return floor, reasons
    if by_chest is not None:
        return tall - float(by_chest), []
    missing = note(
        "floor-unknown",
        "The height of the floor is undeclared, so the hand's height is unknown.",
        "Give --board-height-m (of the board above the floor, lying flat) or --chest-height-m.",
        is_fatal=True,
    )
    return tall - 1.3, [missing]


def pivot_of(
    capture: RawCapture, chest: Trajectory, R_GC: np.ndarray, config: LabelConfig
) -> tuple[Pivot, list[Reason]]:
    clips = []
    for begin_ns, end_ns in capture.clips("lean"):
        rows = (chest.t_ns >= begin_ns) & (chest.t_ns < end_ns) & (chest.tracking != LOST)
        if rows.sum() >= 10:
            clips.append((chest.p[rows], chest.R[rows]))
    if not clips:
        return assumed_pivot(R_GC, config.pivot_G), [
            note(
                "no-lean-clip",
                "No lean clip: hips are assumed 0.4 m below the chest camera.",
                "Stand for 10 s, feet still: lean forwards and to the sides by 20 degrees, and twist.",
            )
        ]
    pivot = fit_pivot(clips, R_GC, config.pivot_G)
    reasons = []
    if not pivot.is_measured:
        reasons.append(
            note(
                "shallow-lean",
                f"The lean clip turns by {np.rad2deg(pivot.lean_rad):.0f} degrees only, expected 15.",
                "Lean further, forwards and to both sides.",
            )
        )
    if pivot.rms_m > 0.02:
        reasons.append(
            note(
                "feet-moved",
                f"In the lean clip the hips move by {1e3 * pivot.rms_m:.0f} mm.",
                "Keep the feet still while leaning, and record the clip again.",
            )
        )
    return pivot, reasons


CHEST = "chest"
HANDS = ("hand", "right_hand", "left_hand")
_TAG_PERIOD_NS = NS_PER_S // 5
_NEAR_JUMP_NS = NS_PER_S // 10
_OUTVOTED_M, _OUTVOTED_RAD = 0.02, float(np.deg2rad(1.5))
"""Largest deviation of an anchor from the graph's solution [m, rad]."""
_FEWEST_TAGS, _MOST_REFUSED = 20, 0.4
"""Least number of seen tags to judge by, and the share of them that may disagree."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Joined:
    """Data that all demonstrations of a capture share. Times are the chest's; W has z = 0 on the floor."""

    capture: RawCapture
    config: LabelConfig
    hand_role: str
    clock: HandClock
    chest: Trajectory
    """Corrected X_WC."""
    hand: Trajectory
    """Corrected X_WH."""
    X_HE: pin.SE3
    jumps_ns: dict[str, np.ndarray]
    """Role -> times at which its odometry jumped."""
    corrected: Corrected
    pivot: Pivot
    R_GC: np.ndarray
    """R_GC of an upright person."""
    floor_z: float
    """Height of the floor in the chest's own world [m]."""
    ties: tuple[Tie, ...]
    reasons: tuple[Reason, ...] = ()
    """Reasons that apply to all demonstrations."""
    hashes: dict[str, str] = field(default_factory=dict)

    @property
    def span_ns(self) -> tuple[int, int]:
        """Span in which both devices have poses."""
        return (
            int(max(self.chest.t_ns[0], self.hand.t_ns[0])),
            int(min(self.chest.t_ns[-1], self.hand.t_ns[-1])),
        )

    def device(self, role: str) -> Device:
        """A device of the capture."""
        return self.capture.devices[role]

    def on_chest_clock(self, role: str, t_ns: np.ndarray) -> np.ndarray:
        """Convert a device's own times to the chest's clock."""
        return np.asarray(t_ns, np.int64) if role == CHEST else self.clock(t_ns)

    def poses(self, role: str, t_ns: np.ndarray) -> Trajectory:
        """Poses of a role's camera in W, at times within `span_ns`."""
        return sampled(self.chest if role == CHEST else self.hand, t_ns, self.jumps_ns[role])

    def is_near_jump(self, role: str, t_ns: np.ndarray) -> np.ndarray:
        """(N,) bool: within a tenth of a second of a jump of its odometry."""
        at = self.jumps_ns[role]
        return np.searchsorted(at, t_ns + _NEAR_JUMP_NS) > np.searchsorted(at, t_ns - _NEAR_JUMP_NS)


def join(
    capture: RawCapture,
    ties: Sequence[Tie],
    config: LabelConfig,
    clock: HandClock,
    *,
    hand: str | None = None,
    reasons: Sequence[Reason] = (),
    hashes: dict[str, str] | None = None,
) -> Joined:
    """Put a capture's devices into one world.

    ties: the anchors, in order of time. hand: role of the hand; None: the only one.
    InvalidValueError: a device, an anchor or X_HE is missing, or there is no time at which both recorded.
    """
    role = hand_of(capture, hand)
    odometry = (capture.devices[CHEST].poses, clock.moved(capture.devices[role].poses))
    X_HE = _tcp_of(capture, role)
    used = list(ties) if config.use_end_anchor else list(ties)[:1]
    corrected = correct(
        *odometry,
        used,
        _tags(capture, X_HE) if config.use_tags else None,
        drifts=(config.chest_drift, config.hand_drift),
        node_s=config.node_s,
        clock_sigma_s=clock.sigma_s,
    )
    late_ns = round(corrected.dt_s * NS_PER_S)
    paths = _in_room(odometry, corrected, used[0], late_ns)
    room = _on_floor(capture, config, used, paths)
    return Joined(
        capture=capture,
        config=config,
        hand_role=role,
        clock=replace(clock, offset_ns=clock.offset_ns - late_ns, sigma_s=corrected.dt_sigma_s),
        chest=room.chest,
        hand=room.hand,
        X_HE=X_HE,
        jumps_ns={
            name: path.t_ns[1:][jumps(path)] for name, path in zip((CHEST, role), odometry, strict=True)
        },
        corrected=corrected,
        pivot=room.pivot,
        R_GC=room.R_GC,
        floor_z=room.floor_z,
        ties=tuple(used),
        reasons=(
            *reasons,
            *anchor_reasons(used, *odometry),
            *closure_reasons(used, config, room.chest, room.hand),
            *_tag_reasons(corrected),
            *_outvoted(used, odometry, paths),
            *room.reasons,
        ),
        hashes=dict(hashes or {}),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Room:
    """Both devices' paths, z up from the floor, and the upright rotation of the chest's camera."""

    chest: Trajectory
    hand: Trajectory
    R_GC: np.ndarray
    floor_z: float
    pivot: Pivot
    reasons: tuple[Reason, ...]


def _on_floor(
    capture: RawCapture, config: LabelConfig, used: Sequence[Tie], paths: tuple[Trajectory, Trajectory]
) -> _Room:
    level = upright(capture, paths[0])
    R_GC = neutral_rotation(level.R)
    floor_z, floor_reasons = floor_of(capture, config, used, level)
    down = pin.SE3(np.eye(3), np.array([0.0, 0.0, -floor_z]))
    chest, hand = (path.before(down) for path in paths)
    pivot, pivot_reasons = pivot_of(capture, chest, R_GC, config)
    return _Room(
        chest=chest,
        hand=hand,
        R_GC=R_GC,
        floor_z=floor_z,
        pivot=pivot,
        reasons=(*floor_reasons, *pivot_reasons),
    )


def hand_of(capture: RawCapture, hand: str | None) -> str:
    """Role of the hand; InvalidValueError: there is no chest, or no such hand."""
    if CHEST not in capture.devices:
        raise InvalidValueError(f"{capture.path} has no chest camera; it has {', '.join(capture.devices)}")
    there = [role for role in HANDS if role in capture.devices]
    if hand is None and there:
        return there[0]
    if hand not in there:
        raise InvalidValueError(
            f"{capture.path} has no {hand or 'hand'}; it has {', '.join(capture.devices)}"
        )
    return str(hand)


def _tcp_of(capture: RawCapture, role: str) -> pin.SE3:
    """X_HE; InvalidValueError: the capture does not declare it."""
    X_HE = capture.devices[role].info.X_HE
    if X_HE is None:
        raise InvalidValueError(
            f"the capture does not declare the TCP's pose in the camera of {role}: `calibrate tcp` "
            "finds it, and `capture label --tcp` takes its file"
        )
    return X_HE


def _in_room(
    odometry: tuple[Trajectory, Trajectory], corrected: Corrected, first: Tie, late_ns: int
) -> tuple[Trajectory, Trajectory]:
    """Corrected chest and hand in the chest's world, where both are known; late_ns: of the hand's clock."""
    start_ns, stop_ns = int(corrected.chest.t_ns[0]), int(corrected.chest.t_ns[-1]) + 1
    chest, hand = odometry[0], odometry[1].shifted(-late_ns).before(first.level)
    return (
        corrected.chest.of(chest.between(start_ns, stop_ns)),
        corrected.hand.of(hand.between(start_ns, stop_ns)),
    )


def _outvoted(
    ties: Sequence[Tie], odometry: tuple[Trajectory, Trajectory], corrected: tuple[Trajectory, Trajectory]
) -> list[Reason]:
    """Reasons for anchors that contradict odometry, tags and the other anchors together."""
    out = []
    for i, tie in enumerate(ties):
        X_VhB = tie.X_WcWh.inverse() * tie.X_WcB
        boards = []
        for path, moved, t_ns, X_VB in zip(
            odometry, corrected, (tie.chest_ns, tie.hand_ns), (tie.X_WcB, X_VhB), strict=True
        ):
            at = int(np.clip(t_ns, max(path.t_ns[0], moved.t_ns[0]), min(path.t_ns[-1], moved.t_ns[-1])))
            boards.append(moved.at(at) * path.at(at).inverse() * X_VB)
        off = boards[0].inverse() * boards[1]
        far_m, far_rad = float(np.linalg.norm(off.translation)), float(np.linalg.norm(pin.log3(off.rotation)))
        usual_m = float(np.sqrt(np.trace(tie.covariance[:3, :3])))
        usual_rad = float(np.sqrt(np.trace(tie.covariance[3:, 3:])))
        if far_m > max(_OUTVOTED_M, 5.0 * usual_m) or far_rad > max(_OUTVOTED_RAD, 5.0 * usual_rad):
            out.append(
                note(
                    "anchor-outvoted",
                    f"Anchor {i} puts the hand {1e3 * far_m:.0f} mm, {np.rad2deg(far_rad):.1f} degrees from "
                    f"where tags, odometry and other anchors do; its uncertainty is {1e3 * usual_m:.0f} mm.",
                    "The board was moved between the views of chest and hand, or a camera file belongs to "
                    "another camera: fix the board and show it to both again.",
                    is_fatal=True,
                )
            )
    return out


def _tag_reasons(corrected: Corrected) -> list[Reason]:
    """Reasons from the gripper's tags that contradict the anchors."""
    if corrected.num_tags < _FEWEST_TAGS or corrected.num_refused_tags < _MOST_REFUSED * corrected.num_tags:
        return []
    share = 100.0 * corrected.num_refused_tags / corrected.num_tags
    return [
        note(
            "tags-elsewhere",
            f"In {share:.0f} % of {corrected.num_tags} images the gripper's tags are not where the anchors "
            "and both odometries have the hand.",
            "The board was moved between the views, the declared poses of tags or TCP are wrong, "
            "or odometry is wrong: show the fixed board again, or correct the description of the tags.",
            is_fatal=True,
        )
    ]


def _tags(capture: RawCapture, X_HE: pin.SE3) -> TagSights | None:
    """Sightings of the gripper's tags in the chest's images; None: the tags are undescribed."""
    found, info = capture.devices[CHEST].tags, capture.devices[CHEST].info
    described = capture.setup.more.get("tags")
    if found is None or not len(found.t_ns) or info.camera is None or not isinstance(described, dict):
        return None
    corners_of = {int(each["tag"]): _tag_corners(each, X_HE) for each in described.get("cube", ())}
    known = np.isin(found.tag, list(corners_of))
    if not known.any():
        return None
    sights = TagSights(
        t_ns=found.t_ns[known],
        corners_H=np.array([corners_of[int(tag)] for tag in found.tag[known]]),
        uv=found.corners[known],
        camera=CameraModel.from_dict(info.camera),
    ).thinned(_TAG_PERIOD_NS)
    late = readout_ns(capture, CHEST, sights.uv[:, :, 1].mean(axis=1))
    sights = replace(sights, t_ns=sights.t_ns + late)
    return sights.taken(np.argsort(sights.t_ns, kind="stable"))


def readout_ns(capture: RawCapture, role: str, v: np.ndarray) -> np.ndarray:
    """Exposure time of image rows (N,) after the middle row, (N,) int64 [ns].

    Uses `readout_ns` of capture.json, role -> time from the first to the last row, from a data sheet or
    measured.
    """
    readout, camera = capture.setup.more.get("readout_ns"), capture.devices[role].info.camera
    if not isinstance(readout, dict) or camera is None:
        return np.zeros(len(v), dtype=np.int64)
    height = CameraModel.from_dict(camera).size[0]
    share = (np.asarray(v) - 0.5 * (height - 1)) / height
    return np.rint(share * float(readout.get(role, 0.0))).astype(np.int64)


def _tag_corners(tag: dict, X_HE: pin.SE3) -> np.ndarray:
    """Corners (4, 3) of a tag in the hand's camera. Frame of a tag: x right, y down as read, z into it."""
    px, py, pz, qw, qx, qy, qz = map(float, tag["X_ET"])
    X_HT = X_HE * pose_from_numbers((px, py, pz, qw, qx, qy, qz))
    flat = 0.5 * float(tag["size_m"]) * np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])
    out: np.ndarray = flat @ X_HT.rotation.T + X_HT.translation
    return out
