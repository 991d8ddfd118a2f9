"""Writes a recording as the devices would: every number on their own clocks, including faults."""

from collections.abc import Callable, Iterable, Mapping
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
from sim.capture import faults as fault
from sim.capture import tags as gripper_tags
from sim.capture.cameras import Sight
from sim.capture.clocks import sample_times
from sim.capture.devices import CHEST, HAND, STREAMS, Device, middle
from sim.capture.imu import run_imu
from sim.capture.misread import misread
from sim.capture.rig import BOARD, RigConfig
from sim.capture.sights import board_during, see_board, see_cube, see_things
from sim.capture.takes import DEMONSTRATION, WALK, Recording

Pictures = Callable[[Device, Recording], Iterable[UInt8[np.ndarray, "h w 3"]]]
"""Draws a device's images: one for each kept frame, in order."""
WHEN = "2026-11-26T12:00:00+00:00"
_BY = "simulated person"


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
        if pictures is None:
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
            "tags": gripper_tags.described(),
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
    numbers = [tag.number for tag in gripper_tags.cube()]
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
