"""A session on disk: the devices' recordings in FOLDER/capture, the hidden truth in FOLDER/truth.

takes ─► recording ─► per device: frames ─► odometry, IMU ─► stamps of its own clock ─► CaptureWriter
                                     └────► corners, tags, glimpses (by projection, or in drawn images)
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pinocchio as pin

from calibration.trajectory import Trajectory
from robot_runtime.core.values.action import NS_PER_S
from sim.capture import faults as fault
from sim.capture.clocks import DeviceClock, draw_clock, kept, sample_times
from sim.capture.devices import CHEST, HAND, STREAMS, Device, middle
from sim.capture.performance import Performance
from sim.capture.rig import RigConfig
from sim.capture.takes import Recording, Take, record
from sim.capture.truth import Truth
from sim.capture.vio import Jump, run_vio
from sim.capture.walks import X_EH
from sim.capture.writing import Pictures, write_capture

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
