"""A live recording: cameras and pose streams of this machine, marked by the gripper, judged at once."""

import contextlib
import json
import threading
import time
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import zmq

from calibration.capture.raw import RawCapture
from calibration.capture.video import FragmentedVideo
from calibration.commands.capture.streams import Streams
from robot_runtime.cli import main

R_WC = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
CLOSED_S = ((2.6, 2.7), (2.9, 3.0), (4.3, 4.4), (4.6, 4.7))
"""Twice to begin, twice to end."""


def message(t_s: float, role: str) -> bytes:
    q = pin.Quaternion(R_WC @ pin.rpy.rpyToMatrix(0.1 * np.sin(2 * t_s), 0.1 * np.cos(t_s), 0.0)).coeffs()
    said = {"t_ns": round(t_s * 1e9), "p": [0.1 * np.sin(t_s), 0.0, 1.3], "q_wxyz": [q[3], q[0], q[1], q[2]]}
    if role == "hand":
        said["width_m"] = 0.004 if any(a < t_s < b for a, b in CLOSED_S) else 0.08
        said["tracking"] = "lost" if 3.4 < t_s < 3.8 else "ok"
    return json.dumps(said).encode()


def stream(addresses: dict[str, str], is_over: threading.Event) -> None:
    context = zmq.Context()
    sockets = {role: context.socket(zmq.PUSH) for role in addresses}
    for role, socket in sockets.items():
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing is sent before somebody listens
        socket.setsockopt(zmq.SNDTIMEO, 20_000)
        socket.connect(addresses[role])
    for role, socket in sockets.items():
        socket.send(message(0.0, role))
    begin_s = time.monotonic()
    while not is_over.is_set():
        for role, socket in sockets.items():
            with contextlib.suppress(zmq.Again):  # nobody listens any more
                socket.send(message(time.monotonic() - begin_s, role), zmq.NOBLOCK)
        time.sleep(0.01)
    context.destroy(0)


def rig(folder: Path, addresses: dict[str, str], *, fps: float = 30.0) -> Path:
    writer = FragmentedVideo(folder / "v.mp4", fps, (48, 64))
    for i in range(15):
        writer.add(np.full((48, 64, 3), 10 * i, dtype=np.uint8))
    writer.close()
    camera = 'camera = {driver = "opencv", device = "v.mp4", loop = true, size = [48, 64]}'
    tables = [f'[{role}]\nposes = "{address}"\n{camera}\n' for role, address in addresses.items()]
    (folder / "rig.toml").write_text("".join(tables) + 'gripper = "sensor"\n')
    return folder / "rig.toml"


@pytest.mark.long
def test_the_gripper_marks_a_demonstration_and_lost_tracking_is_said_at_once(tmp_path, capsys):
    addresses = {role: f"ipc://{tmp_path}/{role}" for role in ("chest", "hand")}
    is_over = threading.Event()
    sender = threading.Thread(target=stream, args=(addresses, is_over), daemon=True)
    file, out = rig(tmp_path, addresses), tmp_path / "out"
    sender.start()
    try:
        assert main(["capture", "record", str(file), "--output", str(out), "--seconds", "3.2"]) == 1
    finally:
        is_over.set()
        sender.join()
    said = capsys.readouterr().out
    assert said.index("begun") < said.index("hand: TRACKING LOST") < said.index("hand: tracking is back")
    assert "NOT USABLE" in said
    capture = RawCapture.open(out)
    assert [mark.what for mark in capture.marks] == ["begin", "end"]
    assert len(capture.devices["hand"].poses) > 100
    assert capture.devices["chest"].num_pictures == len(capture.devices["chest"].frames) > 30
    assert main(["capture", "record", str(tmp_path / "v.mp4"), "--output", str(out)]) == 1
    assert "is no TOML" in capsys.readouterr().err


@pytest.mark.long
def test_a_slower_camera_is_recorded_at_its_own_rate_and_judged_by_it(tmp_path, capsys):
    addresses = {role: f"ipc://{tmp_path}/{role}" for role in ("chest", "hand")}
    is_over = threading.Event()
    sender = threading.Thread(target=stream, args=(addresses, is_over), daemon=True)
    file, out = rig(tmp_path, addresses, fps=12.0), tmp_path / "out"
    file.write_text(file.read_text().replace("[hand]", "fps = 30\n[hand]"))
    sender.start()
    try:
        main(["capture", "record", str(file), "--output", str(out), "--seconds", "6"])
    finally:
        is_over.set()
        sender.join()
    said = capsys.readouterr().out
    assert "chest: its camera gives 12" in said
    assert "the rig's file says 30" in said
    assert "pictures-dropped" not in said
    assert "no-pictures" not in said
    for device in RawCapture.open(out).devices.values():
        assert device.info.fps is not None
        assert abs(device.info.fps - 12.0) < 0.6


def test_a_stamp_of_the_future_is_left_out_and_its_device_goes_on(tmp_path):
    address, said = f"ipc://{tmp_path}/hand", []
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(address)

    def send(ahead_s: float) -> None:
        told = json.loads(message(0.0, "hand")) | {"t_ns": time.monotonic_ns() + round(1e9 * ahead_s)}
        socket.send(json.dumps(told).encode())

    with Streams({}, {"hand": (address, "optical", "z")}, say=said.append, alarm=said.append) as streams:
        end_s = time.monotonic() + 30.0
        while not streams.is_ready:
            assert time.monotonic() < end_s
            send(0.0)
            streams.take(0.05)
        send(10_000.0)
        kept = []
        for _ in range(5):
            send(0.0)
            kept += [each.t_ns for each in streams.take(1.0) if each.t_ns is not None]
    context.destroy(0)
    assert len(kept) >= 3
    assert any("1 stamps are in the future" in line for line in said), said
