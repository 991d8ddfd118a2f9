"""Ground truth of a simulated capture, hidden from labelling: `Truth`, stored beside the raw zone."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pinocchio as pin
from jaxtyping import Float, Int64

from calibration.trajectory import OK, Trajectory
from robot_runtime.errors import InvalidValueError
from sim.capture.clocks import DeviceClock
from sim.capture.devices import CHEST, HAND, Device
from sim.capture.rig import RigConfig
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
