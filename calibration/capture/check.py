"""Checks whether a capture's demonstrations can be used, each with its reasons: `check_capture`.

It reports what labels need and a capture lacks, while that can still be supplied, and a hand that is out of
reach of the chest: too far, behind, or on the other side.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from calibration.camera import CameraModel
from calibration.capture.gravity import MISTAKES, TILTED, attitude, imu_turn
from calibration.capture.odometry import clock_offset, jumps_outside, time_units
from calibration.capture.raw import Demonstration, Device, RawCapture
from calibration.capture.stretch import Limits, clock_jumps, look
from calibration.capture.video import size_and_fps
from calibration.clocks import ClockFit, Turning, join
from calibration.readings import READINGS
from calibration.trajectory import LOST
from calibration.verdict import Reason, Verdict
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError


def of_roles(capture: RawCapture) -> list[Reason]:
    """Check that there are a chest and a hand."""
    roles = set(capture.devices)
    if "chest" in roles and len(roles) > 1:
        return []
    return [
        Reason(
            name="device-missing",
            what=f"labels need a chest and a hand, got {', '.join(sorted(roles))}.",
            do="Import or record both at once, as --chest and --hand: devices added to this capture later "
            "become a separate part.",
        )
    ]


def of_marks(capture: RawCapture) -> list[Reason]:
    """Check for demonstrations and the clips that join devices. InvalidValueError: marks are unreadable."""
    out = []
    spans = capture.spans
    if spans.unpaired:
        listed = ", ".join(f"{m.what} at {m.t_ns} ns" for m in spans.unpaired[:5])
        out.append(
            Reason(
                name="marks-unpaired",
                what=f"{len(spans.unpaired)} marks have no partner and are left out: {listed}.",
                do="End each demonstration that was begun; what lies between such marks is in no "
                "demonstration.",
                is_fatal=False,
            )
        )
    if not spans.demonstrations:
        out.append(
            Reason(
                name="no-demonstrations",
                what="no demonstration is marked.",
                do="Mark them while recording (keys n and y), or give their times to the import (--marks).",
            )
        )
    if not spans.clips["anchor"]:
        out.append(
            Reason(
                name="no-anchor",
                what="no anchor clip is marked, so the pose of the hand's world in the chest's is unknown.",
                do="Show the board to both cameras at the start and at the end (clip anchor: key a, or a "
                "line of --marks).",
                is_fatal=False,
            )
        )
    if not spans.clips["lean"]:
        out.append(
            Reason(
                name="no-lean",
                what="no lean clip is marked, so the point that the wearer leans about is unknown.",
                do="Lean forward and sideways with feet still, once (clip lean: key l, or a line of "
                "--marks).",
                is_fatal=False,
            )
        )
    return out


def of_measures(capture: RawCapture, roles: Sequence[str]) -> list[Reason]:
    """Check for measured quantities: floor height, TCP pose, gripper width.

    roles: of the devices that can be read.
    """
    out = []
    if not {"board_height_m", "chest_height_m"} & set(capture.setup.more):
        out.append(
            Reason(
                name="no-floor",
                what="the height of the floor is undeclared, and labels measure heights from it.",
                do="Give the height of the lying board or of the chest's camera to `capture label` "
                "(--board-height-m, --chest-height-m), or next time to the import or in the rig's file.",
                is_fatal=False,
            )
        )
    for role in roles:
        if role == "chest":
            continue
        device = capture.devices[role]
        if device.info.X_HE is None:
            out.append(
                Reason(
                    name="no-tcp",
                    what=f"{role}: the pose of the TCP in its camera, which labels need, is undeclared.",
                    do="`calibrate tcp` finds it; give its file to `capture label --tcp`, or to the import "
                    "(tcp=FILE) or the rig's file before.",
                    is_fatal=False,
                )
            )
        if device.gripper is None and device.info.gripper is None:
            out.append(
                Reason(
                    name="no-width",
                    what=f"{role}: the width of its gripper is not measured, so labels have no gripper.",
                    do="Give its widths (gripper=FILE), or film tags on its fingers (gripper=tags).",
                    is_fatal=False,
                )
            )
    return out


MOST_REACH = 1.3
"""Largest distance [m] from a chest camera to a camera on a hand that holds a tool."""
_STEP_NS = NS_PER_S // 10
_OFF_SIDE = 0.1
"""Largest distance [m] by which a left hand's mean may lie on the right."""


def misplaced(
    role: str,
    chest: Device,
    hand: Device,
    clock: ClockFit | None,
    X_WcWh: pin.SE3,
    span: tuple[int, int],
) -> list[Reason]:
    """Faults of a hand's position in one demonstration; span: [begin, end), chest's clock."""
    t_ns = np.arange(span[0], span[1], _STEP_NS, dtype=np.int64)
    hand_ns = t_ns if clock is None else clock.b_of_a(t_ns)
    inside = (t_ns >= chest.poses.t_ns[0]) & (t_ns <= chest.poses.t_ns[-1])
    inside &= (hand_ns >= hand.poses.t_ns[0]) & (hand_ns <= hand.poses.t_ns[-1])
    if inside.sum() < 5:
        return []
    of_chest, of_hand = chest.poses.sampled(t_ns[inside]), hand.poses.sampled(hand_ns[inside]).before(X_WcWh)
    known = (of_chest.tracking != LOST) & (of_hand.tracking != LOST)
    if known.sum() < 5:
        return []
    p_CH = np.einsum("nji,nj->ni", of_chest.R, of_hand.p - of_chest.p)[known]
    far, behind = np.linalg.norm(p_CH, axis=1), float((p_CH[:, 2] < -0.1).mean())
    if np.quantile(far, 0.9) > MOST_REACH or behind > 0.5:
        return [
            Reason(
                name="hand-out-of-reach",
                what=f"{role}: it is {np.median(far):.2f} m from the chest's camera, and behind it for "
                f"{100 * behind:.0f} % of the time; an arm reaches {MOST_REACH:g} m, forward.",
                do="Chest and hand are swapped, the anchor is of another recording, or clocks are not "
                "joined.",
            )
        ]
    side = {"left_hand": -1.0, "right_hand": 1.0}.get(role, 0.0)
    if side and side * float(p_CH[:, 0].mean()) < -_OFF_SIDE:
        other = "right" if side < 0 else "left"
        return [
            Reason(
                name="sides-swapped",
                what=f"{role}: it is on the {other} for most of the time, {abs(p_CH[:, 0].mean()):.2f} m.",
                do="Left and right are swapped: import again with the roles exchanged.",
                is_fatal=False,
            )
        ]
    return []


MOST_SYNC_NS = 3_000_000
"""Largest standard deviation of joined clocks: a hand at 0.7 m/s moves 2 mm in 3 ms."""


@dataclass(frozen=True, kw_only=True)
class CheckedDemonstration:
    """One demonstration and whether to use it."""

    demonstration: Demonstration
    verdict: Verdict

    @property
    def seconds(self) -> float:
        return (self.demonstration.end_ns - self.demonstration.begin_ns) / NS_PER_S


@dataclass(frozen=True, kw_only=True)
class CaptureReport:
    """Findings of the check of one capture."""

    verdict: Verdict
    """On the capture as a whole: a fatal reason here invalidates every demonstration."""
    demonstrations: tuple[CheckedDemonstration, ...]
    clocks: Mapping[str, ClockFit]
    """Role of a hand -> fit of its clock to the chest's; only those that could be joined."""

    @property
    def usable(self) -> tuple[Demonstration, ...]:
        """Demonstrations that labels can be made from; none if the capture as a whole is refused."""
        if not self.verdict.ok:
            return ()
        return tuple(each.demonstration for each in self.demonstrations if each.verdict.ok)


def check_capture(
    capture: RawCapture,
    *,
    limits: Limits | None = None,
    anchors: Mapping[str, pin.SE3] | None = None,
    with_checksums: bool = True,
    has_shared_clock: bool = False,
    hand: str | None = None,
    in_videos: bool = True,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> CaptureReport:
    """Check the whole capture and each of its demonstrations.

    hand: use only the chest and this hand, where there are two; None: all.
    has_shared_clock: one clock stamped all devices, whatever the capture declares.
    anchors: role of a hand -> X_WcWh, to check that the hand is within reach; if not given, estimated from
    the board in the anchor clips.
    with_checksums: verify checksums, which reads every byte.
    in_videos: search the videos of the anchor clips for the board, where its corners were not found before;
    otherwise images of another board, or that do not match their poses, pass.
    progress: called with (done, total) during the search.
    """
    limits = limits or Limits()
    reasons = [*_on_disk(capture, with_checksums=with_checksums), *of_roles(capture)]
    readable, broken = _readable(capture, hand)
    reasons += broken
    is_shared = has_shared_clock or capture.setup.more.get("clock") == "shared"
    clocks, unjoined = ({}, []) if is_shared else join_clocks(capture, readable)
    for device in readable.values():
        units = time_units(device)
        reasons += units or [*_device(device), *clock_jumps(device)]
    reasons += unjoined if "time-units" not in {each.name for each in reasons} else []
    reasons += clock_offset(capture, clock_fit) if is_shared else []
    reasons += _swapped(readable)
    wrong, roughly = _looked_at(capture, readable, clocks, in_videos=in_videos, progress=progress)
    reasons = _surest(reasons, wrong)
    anchors = roughly if anchors is None else anchors
    try:
        demonstrations = capture.demonstrations()
        reasons += of_marks(capture)
    except InvalidValueError as error:
        demonstrations, reasons = (), [*reasons, _unreadable(error)]
    reasons += [*of_measures(capture, list(readable)), *_cut(capture)]
    for role, device in readable.items():
        spans = [on_clock_of(role, clocks, each.begin_ns, each.end_ns) for each in demonstrations]
        reasons += jumps_outside(device, [(begin, end) for begin, end in spans], limits)
    checked = [
        CheckedDemonstration(
            demonstration=each, verdict=_demonstration(each, readable, clocks, limits, anchors)
        )
        for each in demonstrations
    ]
    return CaptureReport(verdict=Verdict.of(reasons), demonstrations=tuple(checked), clocks=clocks)


def check_demonstration(
    capture: RawCapture, demonstration: Demonstration, *, limits: Limits | None = None
) -> Verdict:
    """Check one demonstration right after it ended; clocks that are not joined yet count as one."""
    readable, broken = _readable(capture)
    found = _demonstration(demonstration, readable, {}, limits or Limits(), {})
    return Verdict.of([*broken, *found.reasons])


def join_clocks(
    capture: RawCapture, devices: Mapping[str, Device] | None = None
) -> tuple[dict[str, ClockFit], list[Reason]]:
    """Fits each hand's clock to the chest's by the marked sync spans: (role -> fit, what is wrong)."""
    devices = capture.devices if devices is None else devices
    fits: dict[str, ClockFit] = {}
    reasons: list[Reason] = []
    hands = [role for role in devices if role != "chest"]
    if "chest" not in devices or not hands or capture.setup.more.get("clock") == "shared":
        return fits, reasons
    for role in hands:
        try:
            fits[role] = clock_fit(capture, role)
        except InvalidValueError as error:
            reasons.append(
                Reason(
                    name="clocks-not-joined",
                    what=f"{role} and chest: {error}.",
                    do="Mark sync spans, or record again.",
                )
            )
            continue
        reasons += _joined(role, fits[role])
    return fits, reasons


def clock_fit(capture: RawCapture, role: str) -> ClockFit:
    """Fit a hand's clock to the chest's. InvalidValueError: no sync span is marked, or none determines it."""
    chest, hand = capture.devices["chest"], capture.devices[role]
    return join(Turning.of(chest.poses, chest.imu), Turning.of(hand.poses, hand.imu), capture.clips("sync"))


def _joined(role: str, fit: ClockFit) -> list[Reason]:
    out = [
        Reason(
            name="sync-failed",
            what=f"{role}: {why}.",
            do="The other sync spans are used; repeat this one next time.",
            is_fatal=False,
        )
        for why in fit.failed
    ]
    if not fit.has_skew:
        out.append(
            Reason(
                name="one-sync",
                what=f"{role}: its clock was joined at one time only, so its skew is unknown; 50 ppm are "
                "3 ms a minute.",
                do="Hold both devices together and turn them at the end as well.",
                is_fatal=False,
            )
        )
    if fit.sigma_ns > MOST_SYNC_NS:
        out.append(
            Reason(
                name="clocks-uncertain",
                what=f"{role}: its clock is known to {fit.sigma_ns / 1e6:.1f} ms only, "
                f"expected {MOST_SYNC_NS / 1e6:g} ms.",
                do="Turn both devices longer and more briskly, held firmly together.",
                is_fatal=fit.sigma_ns > 3 * MOST_SYNC_NS,
            )
        )
    return out


def _on_disk(capture: RawCapture, *, with_checksums: bool) -> list[Reason]:
    if with_checksums and (changed := capture.changed()):
        return [
            Reason(
                name="changed",
                what=f"the raw zone is not as it was recorded: {'; '.join(changed[:5])}.",
                do="Fetch the original: nothing may write there but the recording itself.",
            )
        ]
    return []


def _cut(capture: RawCapture) -> list[Reason]:
    """Whether the recording was cut; call it after everything has been read."""
    if capture.is_closed:
        return []
    files = [*capture.cut, *(f"{d.role}/{name}" for d in capture.devices.values() for name in d.cut)]
    where = f"; cut in the middle: {', '.join(files)}" if files else ""
    return [
        Reason(
            name="cut",
            what=f"the recording was not closed properly{where}.",
            do="What came before the cut is read; end marks, syncs or anchors after it are missing.",
            is_fatal=False,
        )
    ]


def _readable(capture: RawCapture, hand: str | None = None) -> tuple[dict[str, Device], list[Reason]]:
    """Devices whose files can be read, and why others cannot. hand: the only hand to read; None: all."""
    out, reasons = {}, []
    for role, device in capture.devices.items():
        if hand is not None and role not in ("chest", hand):
            continue
        if device.video is not None and not (device.folder / "poses.csv").is_file():
            reasons.append(
                Reason(
                    name="no-poses-yet",
                    what=f"{role}: it has a video and no poses.",
                    do="`capture poses` computes them from the videos; or import again with trajectory=FILE.",
                )
            )
            continue
        try:
            _ = device.frames, device.poses, device.imu, device.gripper, device.tags, device.num_pictures
            out[role] = device
        except InvalidValueError as error:
            reasons.append(_unreadable(error))
    return out, reasons


def _unreadable(error: InvalidValueError) -> Reason:
    return Reason(
        name="unreadable",
        what=f"{error}.",
        do="Fix the program that wrote that file, or its adapter, and import again.",
    )


def _swapped(devices: Mapping[str, Device]) -> list[Reason]:
    chest, hands = devices.get("chest"), [each for role, each in devices.items() if role != "chest"]
    if chest is None or chest.gripper is None or any(each.gripper is not None for each in hands):
        return []
    return [
        Reason(
            name="roles-swapped",
            what="the chest's device measures a gripper, and no hand's device does.",
            do="Chest and hand are swapped: import again with the roles exchanged.",
        )
    ]


def _surest(of_motion: Sequence[Reason], of_board: Sequence[Reason]) -> list[Reason]:
    """Prefer what the board says about misread poses over what gravity says of the same device."""
    misread = {_role(each) for each in of_board if each.name in READINGS}
    kept = [each for each in of_motion if each.name not in MISTAKES or _role(each) not in misread]
    is_chest_off = any(each.name in MISTAKES and _role(each) == "chest" for each in kept)
    return [*kept, *(each for each in of_board if each.name not in TILTED or not is_chest_off)]


def _role(reason: Reason) -> str:
    return reason.what.partition(":")[0]


def _looked_at(
    capture: RawCapture,
    devices: Mapping[str, Device],
    clocks: Mapping[str, ClockFit],
    *,
    in_videos: bool,
    progress: Callable[[int, int], object],
) -> tuple[list[Reason], dict[str, pin.SE3]]:
    """Faults that the anchor clips show, and a rough X_WcWh by role of a hand."""
    from calibration.capture.board_seen import (
        board_seen,
        odometry_wrong,
        seen_wrong,
        worlds_joined,
        worlds_tilted,
    )

    try:
        seen = board_seen(capture, devices, clocks, in_videos=in_videos, progress=progress)
    except InvalidValueError as error:
        return [_unreadable(error)], {}
    wrong = seen_wrong(seen)
    if any(reason.is_fatal for reason in wrong):
        return wrong, {}
    joined = worlds_joined(seen)
    tilted = worlds_tilted(joined)
    wrong += tilted or odometry_wrong(seen, devices, joined)
    return wrong, {} if tilted else joined


def _device(device: Device) -> list[Reason]:
    imu = None if device.info.X_device_camera is None else device.imu  # else its frame is unknown
    out = attitude(device.role, device.poses, imu)
    if imu is not None and not out:
        out += imu_turn(device.role, device.poses, imu)
    if device.video is not None and device.num_pictures != len(device.frames):
        out.append(
            Reason(
                name="pictures-lost",
                what=f"{device.role}: its video has {device.num_pictures} images, frames.csv has stamps for "
                f"{len(device.frames)}.",
                do="It is unknown which are missing: record again, with less load on the device.",
            )
        )
    out += _sizes(device)
    if device.info.camera is None:
        out.append(
            Reason(
                name="camera-not-calibrated",
                what=f"{device.role}: its camera's intrinsics are unknown, so the images cannot show "
                "whether its poses have the expected axes, units and quaternion order.",
                do="Calibrate it once (calibrate intrinsics), and give the file to the import or recording.",
                is_fatal=False,
            )
        )
    return out


def _sizes(device: Device) -> list[Reason]:
    """Whether the camera file is for images of the recorded size."""
    sizes = {"capture.json": device.info.size}
    try:
        if device.info.camera is not None:
            sizes["its camera's file"] = CameraModel.from_dict(device.info.camera).size
        if device.video is not None:
            sizes["its video"] = size_and_fps(device.video)[0]
    except (ValueError, TypeError, OverflowError) as error:
        return [
            Reason(
                name="camera-unreadable",
                what=f"{device.role}: its camera file is invalid: {error}.",
                do="Give the file that `calibrate intrinsics` wrote, and import again.",
            )
        ]
    known = {name: tuple(size) for name, size in sizes.items() if size is not None}
    if len(set(known.values())) <= 1:
        return []
    sizes_found = ", ".join(f"{w}x{h} by {name}" for name, (h, w) in known.items())
    return [
        Reason(
            name="camera-of-another-size",
            what=f"{device.role}: expected images of one size, got {sizes_found}.",
            do="Calibrate the camera at the recorded size, and import again with that file.",
        )
    ]


def _demonstration(
    demonstration: Demonstration,
    devices: Mapping[str, Device],
    clocks: Mapping[str, ClockFit],
    limits: Limits,
    anchors: Mapping[str, pin.SE3],
) -> Verdict:
    reasons: list[Reason] = []
    seconds = (demonstration.end_ns - demonstration.begin_ns) / NS_PER_S
    if seconds < limits.least_s:
        reasons.append(
            Reason(
                name="too-short",
                what=f"it is {seconds:.2f} s long, expected at least {limits.least_s:g} s.",
                do="Mark its beginning before the motion, and its end after it.",
            )
        )
    for role, device in devices.items():
        start_ns, stop_ns = on_clock_of(role, clocks, demonstration.begin_ns, demonstration.end_ns)
        reasons += look(device, start_ns, stop_ns, limits)
    for role, X_WcWh in anchors.items():
        if role in devices and "chest" in devices:
            span = (demonstration.begin_ns, demonstration.end_ns)
            reasons += misplaced(role, devices["chest"], devices[role], clocks.get(role), X_WcWh, span)
    return Verdict.of(reasons)


def on_clock_of(role: str, clocks: Mapping[str, ClockFit], *t_ns: int) -> Sequence[int]:
    """Convert times from the chest's clock to that device's; unchanged where the two are not joined."""
    if role not in clocks:
        return t_ns
    return [int(t) for t in clocks[role].b_of_a(np.array(t_ns, dtype=np.int64))]
