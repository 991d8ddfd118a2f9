"""Ground truth of a simulated capture, stored beside the raw zone, and errors against it: `Truth`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pinocchio as pin
from jaxtyping import Bool, Float, Int64
from scipy.spatial.transform import Rotation

from calibration.labels.values import Labels
from calibration.trajectory import OK, Trajectory
from robot_runtime.errors import InvalidValueError
from sim.capture.cameras import CHEST, HAND, Device
from sim.capture.rig import RigConfig
from sim.capture.sensors import DeviceClock
from sim.capture.takes import ANCHOR, Recording, Span

_ARRAYS, _REST = "truth.npz", "truth.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class Truth:
    """A recording's true paths in the room, in true time."""

    t_ns: Int64[np.ndarray, " N"]
    X_WC: Trajectory
    X_WE: Trajectory
    x_WG: Float[np.ndarray, "N 3"]
    width: Float[np.ndarray, " N"]
    spans: tuple[Span, ...]
    successes: tuple[bool, ...]
    """Success of each span's take."""
    boards: tuple[pin.SE3, ...]
    """X_WB of each anchor clip."""
    X_EH: pin.SE3
    clocks: Mapping[str, DeviceClock]
    X_WV: Mapping[str, pin.SE3]
    """Pose of each odometry's world in the room, before drift."""
    X_VC: Mapping[str, Trajectory]
    """Path that each odometry reported, without faults of writing, in true time."""

    @classmethod
    def of(
        cls, devices: Mapping[str, Device], recording: Recording, *, X_EH: pin.SE3, config: RigConfig
    ) -> Self:
        boards = [recording.takes[span.take].X_WB for span in recording.spans_of(ANCHOR)]
        return cls(
            t_ns=recording.X_WC.t_ns,
            X_WC=recording.X_WC,
            X_WE=recording.X_WE,
            x_WG=recording.x_WG,
            width=recording.width,
            spans=recording.spans,
            successes=tuple(recording.takes[span.take].success for span in recording.spans),
            boards=tuple(X_WB for X_WB in boards if X_WB is not None),
            X_EH=X_EH,
            clocks={role: device.clock for role, device in devices.items()},
            X_WV={role: device.odometry.X_WV for role, device in devices.items()},
            X_VC={role: device.odometry.said for role, device in devices.items()},
        )

    def true_time(self, role: str, t_device_ns: Int64[np.ndarray, " M"]) -> Int64[np.ndarray, " M"]:
        """True times at which a device's clock shows these; not for a clock that jumps."""
        clock = self.clocks[role]
        if clock.jumps:
            raise InvalidValueError(
                f"expected a clock of {role} without jumps: with them, true times are not unique"
            )
        rest = np.asarray(t_device_ns, dtype=np.int64) - clock.offset_ns - clock.t_zero_ns
        return clock.t_zero_ns + np.rint(rest / (1.0 + 1e-6 * clock.skew_ppm)).astype(np.int64)

    def hand_in_chest(self, t_ns: Int64[np.ndarray, " M"]) -> tuple[np.ndarray, np.ndarray]:
        """True X_CE at true times: positions (M, 3) [m] and rotations (M, 3, 3)."""
        C, E = self.X_WC.sampled(t_ns), self.X_WE.sampled(t_ns)
        R_CW = C.R.transpose(0, 2, 1)
        return np.einsum("nij,nj->ni", R_CW, E.p - C.p), R_CW @ E.R

    def base(self, t_ns: Int64[np.ndarray, " M"]) -> Float[np.ndarray, "M 3"]:
        """True x_WG at true times."""
        unwrapped = np.column_stack([self.x_WG[:, :2], np.unwrap(self.x_WG[:, 2])])
        return np.column_stack([np.interp(t_ns, self.t_ns, unwrapped[:, i]) for i in range(3)])

    def anchor(self) -> pin.SE3:
        """X_WcWh: the wrist odometry's world in the chest odometry's, before either drifts."""
        return self.X_WV[CHEST].inverse() * self.X_WV[HAND]

    def save(self, folder: Path) -> None:
        """Write the truth to a folder, replacing an existing one."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {
            "t_ns": self.t_ns,
            "X_WC": _numbers(self.X_WC),
            "X_WE": _numbers(self.X_WE),
            "x_WG": self.x_WG,
            "width": self.width,
        }
        for role, path in self.X_VC.items():
            arrays |= {f"t_{role}": path.t_ns, f"said_{role}": _numbers(path), f"ok_{role}": path.tracking}
        np.savez_compressed(folder / _ARRAYS, **arrays)
        rest = {
            "spans": [asdict(span) for span in self.spans],
            "successes": list(self.successes),
            "boards": [_pose(X) for X in self.boards],
            "X_EH": _pose(self.X_EH),
            "clocks": {role: asdict(clock) for role, clock in self.clocks.items()},
            "X_WV": {role: _pose(X) for role, X in self.X_WV.items()},
        }
        (folder / _REST).write_text(json.dumps(rest, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote; InvalidValueError: there is none."""
        if not (folder / _REST).is_file():
            raise InvalidValueError(f"{folder} holds no truth of a simulated session: {_REST} is missing")
        rest = json.loads((folder / _REST).read_text())
        with np.load(folder / _ARRAYS) as arrays:
            t_ns = arrays["t_ns"]
            return cls(
                t_ns=t_ns,
                X_WC=_trajectory(t_ns, arrays["X_WC"]),
                X_WE=_trajectory(t_ns, arrays["X_WE"]),
                x_WG=arrays["x_WG"],
                width=arrays["width"],
                spans=tuple(Span(**each) for each in rest["spans"]),
                successes=tuple(rest["successes"]),
                boards=tuple(map(_se3, rest["boards"])),
                X_EH=_se3(rest["X_EH"]),
                clocks={role: _clock(each) for role, each in rest["clocks"].items()},
                X_WV={role: _se3(each) for role, each in rest["X_WV"].items()},
                X_VC={
                    role: _trajectory(arrays[f"t_{role}"], arrays[f"said_{role}"], arrays[f"ok_{role}"])
                    for role in rest["clocks"]
                },
            )


def _numbers(path: Trajectory) -> Float[np.ndarray, "N 7"]:
    return np.hstack([path.p, path.q])


def _trajectory(t_ns: np.ndarray, numbers: np.ndarray, tracking: np.ndarray | None = None) -> Trajectory:
    state = np.full(len(t_ns), OK) if tracking is None else tracking
    return Trajectory(t_ns=t_ns, p=numbers[:, :3], q=numbers[:, 3:], tracking=state)


def _pose(X: pin.SE3) -> list[float]:
    return [*X.translation.tolist(), *pin.Quaternion(X.rotation).coeffs()[[3, 0, 1, 2]].tolist()]


def _se3(numbers: list[float]) -> pin.SE3:
    x, y, z, qw, qx, qy, qz = numbers
    return pin.SE3(pin.Quaternion(qw, qx, qy, qz).normalized().matrix(), np.array([x, y, z]))


def _clock(fields: Mapping[str, Any]) -> DeviceClock:
    return DeviceClock(**{**fields, "jumps": tuple((int(a), int(b)) for a, b in fields["jumps"])})


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelErrors:
    """Label errors of one demonstration's N rows."""

    valid: Bool[np.ndarray, " N"]
    path_m: Float[np.ndarray, " N"]
    """Path length of the chest camera since the first anchor [m]."""
    hand_m: Float[np.ndarray, " N"]
    """Position error of the TCP in the chest camera [m]."""
    hand_rad: Float[np.ndarray, " N"]
    nees: Float[np.ndarray, " N"]
    """Normalised squared error of the same pose, divided by its 6 degrees of freedom."""
    base_m: Float[np.ndarray, " N"]
    """Position error of the virtual base after the best alignment of the rooms [m]."""
    base_rad: Float[np.ndarray, " N"]
    recomposition_m: float
    """Largest distance of X_WG * X_GE from X_WE [m]."""


def errors_of(labels: Labels, truth: Truth) -> LabelErrors:
    """Compute errors row by row, in true time."""
    t_ns = truth.true_time(CHEST, labels.t_ns)
    p, R = truth.hand_in_chest(t_ns)
    estimated = labels.X_CE
    dp = p - estimated.p
    dr = Rotation.from_matrix(R @ estimated.R.transpose(0, 2, 1)).as_rotvec()
    e = np.hstack([dp, dr])
    nees = np.einsum("ni,ni->n", e, np.linalg.solve(labels.covariance, e[:, :, None])[:, :, 0]) / 6.0
    base_m, base_rad = _base_errors(np.asarray(labels.x_WG), truth.base(t_ns))
    return LabelErrors(
        valid=labels.is_valid,
        path_m=np.interp(t_ns, truth.t_ns, truth.X_WC.path_m()) - _path_at_anchor(truth),
        hand_m=np.linalg.norm(dp, axis=1),
        hand_rad=np.linalg.norm(dr, axis=1),
        nees=nees,
        base_m=base_m,
        base_rad=base_rad,
        recomposition_m=_recomposition(labels),
    )


def clock_error_ns(truth: Truth, t_hand_ns: np.ndarray, t_chest_ns: np.ndarray) -> Float[np.ndarray, " N"]:
    """Errors of wrist-device times converted to the chest's clock [ns]."""
    return t_chest_ns - truth.clocks[CHEST].at(truth.true_time(HAND, t_hand_ns)).astype(float)


def anchor_error(
    truth: Truth, anchor: int, X_WcWh: pin.SE3, chest_ns: int, hand_ns: int
) -> tuple[float, float]:
    """Errors of the anchor, at the board and in the middle of the views [m, rad].

    Poses that both odometries reported there are taken as given: the anchor has to fit them despite drift.
    """
    t_C, t_H = (
        int(truth.true_time(role, np.array([t]))[0]) for role, t in ((CHEST, chest_ns), (HAND, hand_ns))
    )
    X_VcW = _reported(truth, CHEST, t_C) * truth.X_WC.at(t_C).inverse()
    X_VhW = _reported(truth, HAND, t_H) * (truth.X_WE.at(t_H) * truth.X_EH).inverse()
    board = X_VcW.act(truth.boards[anchor].translation)
    off = X_WcWh * (X_VcW * X_VhW.inverse()).inverse()
    return float(np.linalg.norm(off.act(board) - board)), float(np.linalg.norm(pin.log3(off.rotation)))


def _reported(truth: Truth, role: str, t_ns: int) -> pin.SE3:
    return truth.X_VC[role].at(t_ns)


def _path_at_anchor(truth: Truth) -> float:
    ends = [span.stop_ns for span in truth.spans if span.kind == "anchor"]
    return float(np.interp(ends[0], truth.t_ns, truth.X_WC.path_m())) if ends else 0.0


def _base_errors(estimated: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors of position and yaw after the best planar alignment."""
    turn = float(np.angle(np.exp(1j * (true[:, 2] - estimated[:, 2])).mean()))
    c, s = np.cos(turn), np.sin(turn)
    turned = estimated[:, :2] @ np.array([[c, s], [-s, c]])
    off = true[:, :2] - turned
    yaw = true[:, 2] - estimated[:, 2] - turn
    return np.linalg.norm(off - off.mean(axis=0), axis=1), np.abs((yaw + np.pi) % (2 * np.pi) - np.pi)


def _recomposition(labels: Labels) -> float:
    x = np.asarray(labels.x_WG)
    c, s = np.cos(x[:, 2]), np.sin(x[:, 2])
    p = labels.X_GE.p
    there = np.column_stack(
        [x[:, 0] + c * p[:, 0] - s * p[:, 1], x[:, 1] + s * p[:, 0] + c * p[:, 1], p[:, 2]]
    )
    return float(np.abs(there - labels.X_WE.p).max())
