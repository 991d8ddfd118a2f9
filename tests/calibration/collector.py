"""A collector's folder: two MP4s of a board on a table, a CSV of poses each, a CSV of widths, and marks.

Every file is written here, by the simplest code that a collector would use; only the true paths come from
sim/capture. `folder_of` writes it, `command` imports it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import av
import cv2
import numpy as np
import pinocchio as pin

from calibration.camera import Intrinsics, Pinhole
from calibration.store import save
from calibration.trajectory import Trajectory
from sim.capture.drills import CHEST_Z, anchor_take, sync_take, walk_take
from sim.capture.scene import BOARD, X_HE
from sim.capture.takes import Recording, record

S = 1_000_000_000
LENS = Pinhole(size=(240, 320), fx=260.0, fy=260.0, cx=159.5, cy=119.5)
FPS, POSES_HZ = 10, 50
T0 = {"chest": 1_700_000_000 * S, "hand": 5_000 * S}
"""When each device's clock shows the beginning."""


def session(*, seed: int = 0, syncs: bool = True) -> Recording:
    """Both devices turned together, a look at the board, a demonstration, another look, turned again."""
    takes = [anchor_take(np.random.default_rng(seed), stations=4)]
    takes += [walk_take(np.random.default_rng(seed + 1), metres=1.0)]
    takes += [anchor_take(np.random.default_rng(seed + 2), stations=4)]
    if syncs:
        takes = [
            sync_take(np.random.default_rng(seed + 3)),
            *takes,
            sync_take(np.random.default_rng(seed + 4)),
        ]
    return record(takes)


@dataclass(kw_only=True)
class Fault:
    """What is wrong with a collector's files; each value is applied to what would be right."""

    poses: Mapping[str, Callable[[Trajectory, np.ndarray], Trajectory]] = field(default_factory=dict)
    """Role -> other poses for (poses on true time, times of the marks)."""
    rows: Mapping[str, Callable[[list[dict[str, float]]], list[dict[str, object]]]] = field(
        default_factory=dict
    )
    """Role -> other rows of its table of poses."""
    stamps: Mapping[str, Callable[[np.ndarray], np.ndarray]] = field(default_factory=dict)
    """Role -> other times of its images."""
    board: Callable[[str, int, pin.SE3], pin.SE3 | None] = lambda role, t_ns, X_WB: X_WB
    """(role, true time, X_WB) -> where the board lies; None: it is not in view."""
    marks: Sequence[str] = ()
    """Further lines of the marks."""
    has_widths: bool = True


def folder_of(folder: Path, recording: Recording, fault: Fault | None = None) -> Path:
    """Write the files."""
    fault = fault or Fault()
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / "board.json", BOARD)
    save(folder / "lens.json", Intrinsics(camera=LENS))
    q = pin.Quaternion(X_HE.rotation).coeffs()
    tcp = {"p": X_HE.translation.tolist(), "q_wxyz": [q[3], *q[:3]]}
    (folder / "tcp.json").write_text(json.dumps(tcp))
    end_ns = int(recording.X_WC.t_ns[-1])
    for role, path in (("chest", recording.X_WC), ("hand", recording.X_WE.then(X_HE.inverse()))):
        frames = np.arange(S // 20, end_ns - S // 20, S // FPS)
        film(folder / f"{role}.mp4", frames, path, recording, lambda t, X, role=role: fault.board(role, t, X))
        stamps = fault.stamps.get(role, lambda t: t)(frames + T0[role])
        (folder / f"{role}_stamps.csv").write_text("t_ns\n" + "\n".join(map(str, stamps.tolist())) + "\n")
        at = np.arange(S // 100, end_ns - S // 100, S // POSES_HZ)
        poses = path.sampled(at)
        if role in fault.poses:
            poses = fault.poses[role](poses, np.array([(s.start_ns, s.stop_ns) for s in recording.spans]))
        world = pin.SE3(pin.utils.rotate("z", 0.7 if role == "hand" else -0.2), np.array([0.3, -0.1, 0.5]))
        rows = rows_of(poses.before(world), T0[role])
        write(folder / f"{role}_poses.csv", fault.rows.get(role, lambda rows: rows)(rows))
    if fault.has_widths:
        at = np.arange(0, end_ns, S // 20)
        width = np.interp(at, recording.X_WC.t_ns, recording.width)
        rows = [{"t_ns": int(t) + T0["hand"], "width_m": f"{w:.4f}"} for t, w in zip(at, width, strict=True)]
        write(folder / "widths.csv", rows)
    first_s = (S // 20) / S
    names = {"demonstration": "demonstration", "walk": "demonstration"}
    lines = [
        f"{names.get(s.kind, s.kind)},{s.start_ns / S - first_s:.3f},{s.stop_ns / S - first_s:.3f}"
        for s in recording.spans
    ]
    (folder / "marks.csv").write_text("\n".join(["what,begin_s,end_s", *lines, *fault.marks]) + "\n")
    return folder


def rows_of(poses: Trajectory, t0_ns: int) -> list[dict[str, object]]:
    """Poses as rows of a table."""
    names = ("x", "y", "z", "qw", "qx", "qy", "qz")
    return [
        {"t_ns": int(t) + t0_ns, **dict(zip(names, np.round([*p, *q], 7).tolist(), strict=True))}
        for t, p, q in zip(poses.t_ns, poses.p, poses.q, strict=True)
    ]


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write a table with a header."""
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def film(
    path: Path,
    frames: np.ndarray,
    X_WC: Trajectory,
    recording: Recording,
    board: Callable[[int, pin.SE3], pin.SE3 | None],
) -> None:
    """Write a video of the board while it lies there, as any recorder would."""
    wall = np.full((*LENS.size, 3), 90, dtype=np.uint8)
    looks = [(s, recording.takes[s.take].X_WB) for s in recording.spans_of("anchor")]
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=FPS, options={"crf": "18", "preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = *LENS.size, "yuv420p"
        at = X_WC.sampled(frames)
        for i, t_ns in enumerate(frames.tolist()):
            rgb = wall
            for span, X_WB in looks:
                if span.start_ns <= t_ns < span.stop_ns and (X := board(t_ns, X_WB)) is not None:
                    rgb = picture(at[i].inverse() * X)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        file.mux(stream.encode())


def picture(X_CB: pin.SE3) -> np.ndarray:
    """The printed sheet, through a lens without distortion, drawn at four times the size."""
    texels, k = 40, 4
    sheet = cv2.copyMakeBorder(BOARD.picture(texels), *(texels,) * 4, cv2.BORDER_CONSTANT, value=255)
    step = BOARD.square_m / texels
    K = np.array([[LENS.fx, 0, LENS.cx], [0, LENS.fy, LENS.cy], [0, 0, 1.0]])
    K = np.array([[k, 0, (k - 1) / 2], [0, k, (k - 1) / 2], [0, 0, 1.0]]) @ K
    of_texel = np.array([[step, 0, (0.5 - texels) * step], [0, step, (0.5 - texels) * step], [0, 0, 1.0]])
    H = K @ np.column_stack([X_CB.rotation[:, :2], X_CB.translation]) @ of_texel
    size = (k * LENS.size[1], k * LENS.size[0])
    large = cv2.warpPerspective(sheet, H, size, flags=cv2.INTER_LINEAR, borderValue=90)
    small = cv2.resize(large, LENS.size[::-1], interpolation=cv2.INTER_AREA)
    return np.repeat(small[..., None], 3, axis=2)


def command(folder: Path, output: Path, *more: str, widths: bool = True) -> list[str]:
    """Import what is in the folder."""
    chest, hand = (
        f"video:{folder}/{role}.mp4,stamps={folder}/{role}_stamps.csv,trajectory={folder}/{role}_poses.csv,"
        f"camera={folder}/lens.json"
        for role in ("chest", "hand")
    )
    hand += f",tcp={folder}/tcp.json" + (f",gripper={folder}/widths.csv" if widths else "")
    return [
        *("capture", "import", "--output", str(output), "--marks", str(folder / "marks.csv")),
        *("--board", str(folder / "board.json"), "--chest-height-m", f"{CHEST_Z:.3f}"),
        *("--chest", chest, "--hand", hand, *more),
    ]
