"""A session on disk: the devices' recordings in FOLDER/capture, the hidden truth in FOLDER/truth.

    takes ─► recording ─► per device: frames ─► odometry, IMU ─► stamps of its own clock ─► CaptureWriter
                                         └────► corners, tags, glimpses (by projection, or in drawn images)

`record_session` records a simulated person; `simulate_session` any takes. Faults change what is written here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pinocchio as pin
from jaxtyping import UInt8

from calibration.board import Board
from calibration.capture.raw import CaptureWriter
from calibration.capture.values import DeviceInfo, Imu, Setup
from calibration.trajectory import Trajectory
from robot_runtime.core.values.action import NS_PER_S
from sim.capture import faults as fault
from sim.capture.camera_images import drawn
from sim.capture.cameras import (
    CHEST,
    HAND,
    STREAMS,
    Device,
    Sight,
    board_during,
    middle,
    misread,
    see_board,
    see_cube,
    see_things,
)
from sim.capture.clips import Demonstrate, visit
from sim.capture.performance import Performance, load_performance, save_performance
from sim.capture.person import Person, perform
from sim.capture.rig import NOISY, Noise, RigConfig, small_cameras
from sim.capture.scene import BOARD, X_EH, build_scene, cube, tags_described
from sim.capture.sensors import DeviceClock, Jump, draw_clock, kept, run_imu, run_vio, sample_times
from sim.capture.takes import DEMONSTRATION, WALK, Recording, Take, record
from sim.capture.truth import Truth
from sim.tasks import make_task

Pictures = Callable[[Device, Recording], Iterable[UInt8[np.ndarray, "h w 3"]]]
"""Draws a device's images: one for each kept frame, in order."""
WHEN = "2026-11-26T12:00:00+00:00"
_BY = "simulated person"
_EDGE_NS = 30_000_000


def simulate_session(
    takes: Sequence[Take | Performance],
    config: RigConfig,
    folder: Path,
    *,
    X_EH: pin.SE3 = X_EH,
    pictures: Pictures | None = None,
) -> Truth:
    """Record takes with a rig: FOLDER/capture as devices would write it, and FOLDER/truth.

    X_EH: the wrist camera on the gripper. pictures: draws a device's images, one for each kept frame; board
    and tags then have to be detected in the video. None: no video; corners and tags are written as a
    detector would have found them.
    """
    recording = record([Take.of(each) if isinstance(each, Performance) else each for each in takes])
    paths = {CHEST: recording.X_WC, HAND: recording.X_WE.then(X_EH)}
    devices = {role: _device(role, path, recording, config) for role, path in paths.items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_capture(folder / "capture", devices, recording, config, X_EH=X_EH, pictures=pictures)
    truth = Truth.of(devices, recording, X_EH=X_EH, config=config)
    truth.save(folder / "truth")
    return truth


def _device(role: str, X_W: Trajectory, recording: Recording, config: RigConfig) -> Device:
    """Simulate one device."""
    errors, camera = config.noise.device, config.camera(role)
    rng = config.rng(STREAMS[role], 1)
    start, stop = int(X_W.t_ns[0]) + _EDGE_NS, int(X_W.t_ns[-1]) - _EDGE_NS
    frames = sample_times(rng, start, stop, rate_hz=camera.rate_hz, jitter_ns=errors.jitter_ms * 1e6)
    clock = draw_clock(rng, t_zero_ns=start, offset_s=errors.offset_s, skew_ppm=errors.skew_ppm)
    clock = DeviceClock(
        t_zero_ns=start,
        offset_ns=clock.offset_ns + 60 * NS_PER_S,
        skew_ppm=clock.skew_ppm,
        jumps=tuple(
            (middle(recording), round(each.ms * 1e6))
            for each in config.faults
            if isinstance(each, fault.ClockJump) and each.role == role
        ),
    )
    wrong = np.clip(rng.normal(size=len(frames)) * errors.stamp_ms * 1e6, -3e6, 3e6).astype(np.int64)
    path, jumps, vio = X_W.sampled(frames), [], errors.vio
    if jump := fault.find(config.faults, fault.VioJump, role=role):
        p = config.rng(STREAMS[role], 9).normal(size=3) * np.array([1.0, 1.0, 0.3])
        p *= jump.metres / np.linalg.norm(p)
        jumps.append(Jump(t_ns=middle(recording), p=(float(p[0]), float(p[1]), float(p[2]))))
    lost = fault.find(config.faults, fault.LostTracking, role=role)
    odometry = run_vio(
        path,
        vio,
        config.rng(STREAMS[role], 2),
        jumps=tuple(jumps),
        lost=()
        if lost is None
        else ((middle(recording), middle(recording) + round(lost.seconds * NS_PER_S)),),
    )
    share = errors.share_dropped
    if dropped := fault.find(config.faults, fault.DroppedFrames, role=role):
        share = dropped.share
    return Device(
        role=role,
        camera=camera,
        X_W=X_W,
        frames=frames,
        kept=kept(config.rng(STREAMS[role], 3), len(frames), share_dropped=share),
        stamps=clock.at(frames + wrong),
        clock=clock,
        odometry=odometry,
    )


def record_session(
    task: str,
    seeds: Sequence[int],
    folder: Path,
    *,
    noise: Noise = NOISY,
    film: bool = False,
    image_size: tuple[int, int] | None = None,
    demonstrate: Demonstrate = perform,
    on_demonstration: Callable[[Performance], None] = lambda performance: None,
    on_image: Callable[[], None] = lambda: None,
) -> list[Performance]:
    """Record one person's demonstrations, seed by seed, into FOLDER/capture; returns all clips.

    image_size: height and width of videos, by cameras with the robot's fields of view, and then no positions
    of things; None: no videos. on_image: called after each image.
    demonstrate: makes a demonstration; `performed_once` caches them.
    """
    has_images = image_size is not None
    clips = visit(
        task,
        seeds,
        film=film or has_images,
        demonstrate=demonstrate,
        on_demonstration=on_demonstration,
    )
    config = RigConfig(
        noise=noise,
        seed=int(seeds[0]),
        task=make_task(task).instruction,
        cameras={} if image_size is None else small_cameras(image_size),
        corners=has_images,
        glimpses=not has_images,
    )
    pictures = None
    if has_images:
        rooms = [build_scene(make_task(task), has_board=each, prints=True) for each in (True, False)]
        pictures = drawn(*rooms, seed=config.seed, on_picture=on_image)
    simulate_session([Take.of(clip) for clip in clips], config, folder, pictures=pictures)
    return clips


def performed_once(folder: Path, task: str, seed: int, *, person: Person, film: bool) -> Performance:
    """Like `perform`, cached in a folder.

    The caller makes sure that cached files match this code, this person and `film`.
    """
    path = folder / f"{task}-{seed}.npz"
    if (stored := load_performance(path)) is None:
        stored = perform(task, seed, person=person, film=film)
        save_performance(stored, path)
    return stored


def write_capture(
    path: Path,
    devices: Mapping[str, Device],
    recording: Recording,
    config: RigConfig,
    *,
    X_EH: pin.SE3,
    pictures: Pictures | None,
) -> None:
    """Write the raw zone of a session to `path`."""
    setup = _setup(config, recording, X_EH, has_video=pictures is not None)
    with CaptureWriter(path, setup, when=WHEN) as writer:
        for each in devices.values():
            _write_device(writer, each, recording, config, pictures)
        _write_widths(writer, devices[HAND], recording, config)
        _write_marks(writer, devices[CHEST], recording)
        if pictures is None or config.corners:
            for each in devices.values():
                _write_corners(writer, each, recording, config)
            if config.tags:
                _write_tags(writer, devices[CHEST], recording, config)
        if config.glimpses:
            _write_glimpses(writer, devices, recording, config)
    if battery := fault.find(config.faults, fault.EmptyBattery):
        _cut(path, _name(battery.role, config))


def claimed_board(config: RigConfig) -> Board:
    """The board that the person declares."""
    if fault.find(config.faults, fault.SwappedSquares):
        return replace(BOARD, columns=BOARD.rows, rows=BOARD.columns)
    return BOARD


def printed_board(config: RigConfig) -> Board:
    """The board as it was printed."""
    if fault.find(config.faults, fault.LegacyPattern):
        return replace(BOARD, rows=BOARD.rows - 1, legacy=True)
    if scaled := fault.find(config.faults, fault.PrintScale):
        return replace(BOARD, square_m=BOARD.square_m * scaled.scale, marker_m=BOARD.marker_m * scaled.scale)
    return BOARD


def _setup(config: RigConfig, recording: Recording, X_EH: pin.SE3, *, has_video: bool) -> Setup:
    devices = {}
    for role in (CHEST, HAND):
        camera, name = config.camera(role), _name(role, config)
        lens = camera.lens.to_dict()
        if shift := fault.find(config.faults, fault.PixelShift, role=role):
            lens |= {"cx": lens["cx"] + shift.px, "cy": lens["cy"] + shift.px}
        devices[name] = DeviceInfo(
            kind="simulated",
            size=camera.lens.size if has_video else None,
            fps=camera.rate_hz if has_video else None,
            camera=lens,
            X_device_camera=pin.SE3.Identity(),
            X_HE=X_EH.inverse() if name == HAND else None,
            gripper="sensor" if name == HAND else None,
            source="sim.capture",
        )
    return Setup(
        devices=devices,
        task=config.task,
        person=config.person,
        board=claimed_board(config).to_dict(),
        more={
            "tags": tags_described(),
            "readout_ns": {_name(role, config): config.camera(role).readout_ns for role in (CHEST, HAND)},
            **_measured(config, recording),
        },
    )


def _measured(config: RigConfig, recording: Recording) -> Mapping[str, float]:
    """What the person measured with a tape before the session."""
    if config.measured:
        return config.measured
    flat = [X_WB for _, X_WB in board_during(recording) if X_WB.rotation[2, 2] < -0.999]
    return {"board_height_m": float(flat[0].translation[2])} if flat else {}


def _name(role: str, config: RigConfig) -> str:
    """The name that the person gives a device."""
    swapped = fault.find(config.faults, fault.Swapped) is not None
    return {CHEST: HAND, HAND: CHEST}[role] if swapped else role


def _stop(device: Device, recording: Recording, config: RigConfig) -> int:
    """True time at which a device's battery is empty [ns]."""
    empty = fault.find(config.faults, fault.EmptyBattery, role=device.role) is not None
    return middle(recording, last=True) if empty else int(device.frames[-1]) + 1


def _write_device(
    writer: CaptureWriter, device: Device, recording: Recording, config: RigConfig, pictures: Pictures | None
) -> None:
    """Write frames, poses and inertial samples."""
    name, role, stop = _name(device.role, config), device.role, _stop(device, recording, config)
    shift = fault.find(config.faults, fault.ClockShift, role=role)
    late = 0 if shift is None else round(shift.ms * 1e6)
    exposure = device.camera.exposure_ns
    drawn = None if pictures is None else iter(pictures(device, recording))
    for i in device.kept[device.frames[device.kept] < stop].tolist():
        if drawn is None:
            writer.frame(name, int(device.stamps[i]) + late, exposure_ns=exposure)
        else:
            writer.picture(name, int(device.stamps[i]) + late, next(drawn), exposure_ns=exposure)
    _write_poses(writer, name, device, config, stop)
    if config.imu:
        rng = config.rng(STREAMS[role], 4)
        until = min(stop, int(device.frames[-1]))
        times = sample_times(rng, int(device.frames[0]), until, rate_hz=200.0)
        w, a = run_imu(device.X_W, times, config.noise.device.imu, rng)
        writer.imu(name, Imu(t_ns=device.clock.at(times), w=w, a=a))


def _write_poses(writer: CaptureWriter, name: str, device: Device, config: RigConfig, stop: int) -> None:
    path = device.odometry.said
    if turned := fault.find(config.faults, fault.CameraTurned, role=device.role):
        path = path.then(pin.SE3(pin.utils.rotate("x", np.deg2rad(turned.degrees)), np.zeros(3)))
    until = int(np.searchsorted(device.frames, stop))
    q, stamps = path.q[:until], device.stamps[:until]
    if fault.find(config.faults, fault.QuaternionOrder, role=device.role):
        q = q[:, [1, 2, 3, 0]]
    falls = np.flatnonzero(np.diff(stamps) <= 0) + 1
    for piece in np.split(np.arange(until), falls):  # times decrease where a clock was set back
        writer.poses(
            name,
            Trajectory(t_ns=stamps[piece], p=path.p[piece], q=q[piece], tracking=path.tracking[piece]),
        )


def _write_widths(writer: CaptureWriter, hand: Device, recording: Recording, config: RigConfig) -> None:
    """Write gripper widths of a sensor, at every image."""
    rng, name = config.rng(STREAMS[HAND], 5), _name(HAND, config)
    times = hand.frames[hand.frames < _stop(hand, recording, config)]
    width = np.interp(times, recording.X_WE.t_ns, recording.width)
    measured = np.clip(width + rng.normal(size=len(times)) * config.noise.width_m, 0.0, None)
    for t_ns, each in zip(hand.stamps.tolist(), measured.tolist(), strict=False):
        writer.width(name, t_ns, each)


def _write_marks(writer: CaptureWriter, chest: Device, recording: Recording) -> None:
    """Write marks as by a button, on the chest's clock; none for walks, and failed takes are discarded."""
    for span in recording.spans:
        if span.kind == WALK:
            continue
        begin, end = chest.clock.at(np.array([span.start_ns, span.stop_ns])).tolist()
        prefix = "" if span.kind == DEMONSTRATION else f"{span.kind}_"
        writer.mark(begin, f"{prefix}begin", _BY)
        writer.mark(end, f"{prefix}end", _BY)
        if not recording.takes[span.take].success:
            writer.mark(end, "discard", _BY)


def _write_corners(writer: CaptureWriter, device: Device, recording: Recording, config: RigConfig) -> None:
    """Write corners of the board, in every clip that has one."""
    rng, board = config.rng(STREAMS[device.role], 6), printed_board(config)
    ids, p_B = misread(board, claimed_board(config))
    moved = fault.find(config.faults, fault.BoardMoved)
    for k, (span, X_WB) in enumerate(board_during(recording)):
        half = (span.start_ns + span.stop_ns) // 2
        edges = [span.start_ns, half, span.stop_ns]
        for part, (begin, end) in enumerate(pairwise(edges)):
            there = X_WB
            if moved is not None and k == 0 and part == 1:
                there = pin.SE3(np.eye(3), np.array([moved.metres, 0.0, 0.0])) * X_WB
            inside = (device.frames >= begin) & (device.frames < end)
            inside &= device.frames < _stop(device, recording, config)
            sight = see_board(device, there, board, p_B, inside, rng)
            _write_sight(writer, device, config, ids, sight)


def _write_sight(
    writer: CaptureWriter, device: Device, config: RigConfig, ids: np.ndarray, sight: Sight
) -> None:
    index = {int(row): i for i, row in enumerate(device.kept)}
    shift = fault.find(config.faults, fault.ClockShift, role=device.role)
    late = 0 if shift is None else round(shift.ms * 1e6)
    edges = np.flatnonzero(np.diff(sight.picture)) + 1
    for rows in np.split(np.arange(len(sight)), edges):
        if rows.size:
            row = int(sight.picture[rows[0]])
            stamp = int(device.stamps[row]) + late
            order = rows[np.argsort(ids[sight.point[rows]])]
            writer.corners(
                _name(device.role, config),
                stamp,
                index[row],
                ids[sight.point[order]].tolist(),
                sight.uv[order],
            )


def _write_tags(writer: CaptureWriter, chest: Device, recording: Recording, config: RigConfig) -> None:
    """Write detected tags of the gripper's cube, as the chest camera sees them."""
    sight, stop = see_cube(chest, recording, config.rng(STREAMS[CHEST], 7)), _stop(chest, recording, config)
    numbers = [tag.number for tag in cube()]
    for first in range(0, len(sight), 4):
        row = int(sight.picture[first])
        if chest.frames[row] < stop:
            number = numbers[int(sight.point[first]) // 4]
            writer.tag(_name(CHEST, config), int(chest.stamps[row]), number, sight.uv[first : first + 4])


def _write_glimpses(
    writer: CaptureWriter, devices: Mapping[str, Device], recording: Recording, config: RigConfig
) -> None:
    """Write what a detector finds of a demonstration's things, in both videos."""
    for span in recording.spans_of(DEMONSTRATION):
        for device in devices.values():
            rng = config.rng(STREAMS[device.role], 8, span.take)
            stop = _stop(device, recording, config)
            for row, name, p_C, sigma in see_things(
                device, recording, span, rng, noise_m=config.noise.glimpse_m
            ):
                if device.frames[row] < stop:
                    writer.glimpse(
                        _name(device.role, config), int(device.stamps[row]), name, p_C.tolist(), sigma
                    )


def _cut(path: Path, name: str) -> None:
    """Truncate as an empty battery does: no checksums, the last row incomplete."""
    (path / "checksums.json").unlink()
    poses = path / name / "poses.csv"
    text = poses.read_bytes()
    poses.write_bytes(text[:-17])
