"""What a device measures of the truth: clock, visual-inertial odometry, inertial samples, with errors.

    true time t   ──────────┬──────────────────►        all of the simulated session
    device time   c(t) = t + offset + skew (t - t_0)    what its files contain

    V   the odometry's world: z up, its own yaw and origin         dp' = R_z(yaw error) dp + walk
                                                                   p_V = sum of dp', then jumps and noise

An odometry observes gravity, so roll and pitch do not drift. Within `MAP_M` of a mapped position there is no
drift; beyond it, yaw and position walk with the root of the path length.
"""

from dataclasses import dataclass, field

import numpy as np
import pinocchio as pin
from jaxtyping import Bool, Float, Int64, UInt8
from scipy.spatial.transform import Rotation

from calibration.trajectory import LIMITED, LOST, OK, Trajectory
from robot_runtime.core.values.action import NS_PER_S


@dataclass(frozen=True, kw_only=True)
class DeviceClock:
    """A device's clock as a function of true time.

    offset_ns: at `t_zero_ns`. skew_ppm: positive runs fast. jumps: (true time, amount) [ns, ns].
    """

    t_zero_ns: int = 0
    offset_ns: int = 0
    skew_ppm: float = 0.0
    jumps: tuple[tuple[int, int], ...] = ()

    def at(self, t_ns: Int64[np.ndarray, " N"]) -> Int64[np.ndarray, " N"]:
        """Device times of true times (N,) [ns]."""
        t_ns = np.asarray(t_ns, dtype=np.int64)
        skewed = np.rint((t_ns - self.t_zero_ns) * (self.skew_ppm * 1e-6)).astype(np.int64)
        jumped = sum((np.where(t_ns >= when, by, 0) for when, by in self.jumps), np.zeros_like(t_ns))
        return t_ns + self.offset_ns + skewed + jumped


def draw_clock(rng: np.random.Generator, *, t_zero_ns: int, offset_s: float, skew_ppm: float) -> DeviceClock:
    """Draw a clock with offset and skew up to these magnitudes [s, parts per million]."""
    return DeviceClock(
        t_zero_ns=t_zero_ns,
        offset_ns=round(rng.uniform(-offset_s, offset_s) * NS_PER_S),
        skew_ppm=float(rng.uniform(-skew_ppm, skew_ppm)),
    )


def sample_times(
    rng: np.random.Generator, start_ns: int, stop_ns: int, *, rate_hz: float, jitter_ns: float = 0.0
) -> Int64[np.ndarray, " N"]:
    """True times in [start, stop) at which a device samples: a grid of its own phase, with jitter [ns].

    Jitter is clipped to a third of the period, so that times increase.
    """
    period = NS_PER_S / rate_hz
    grid = start_ns + (np.arange(int((stop_ns - start_ns) / period) + 1) + rng.uniform(0.0, 1.0)) * period
    limit = period / 3.0
    times = grid + np.clip(rng.normal(0.0, 1.0, len(grid)) * jitter_ns, -limit, limit)
    times = np.rint(times).astype(np.int64)
    return times[(times >= start_ns) & (times < stop_ns)]


def kept(rng: np.random.Generator, count: int, *, share_dropped: float) -> Int64[np.ndarray, " M"]:
    """Increasing indices of the samples that are not dropped; the first and the last are kept."""
    keep = rng.uniform(size=count) >= share_dropped
    keep[[0, -1]] = True
    return np.flatnonzero(keep)


GRAVITY = np.array([0.0, 0.0, 9.80665])
"""Specific force on a stationary accelerometer in a world with z up [m/s²]."""


@dataclass(frozen=True, kw_only=True)
class ImuErrors:
    """Per-axis errors: noise of each sample, and a constant bias [rad/s, m/s²]."""

    gyro_noise: float = 0.0
    gyro_bias: float = 0.0
    accelerometer_noise: float = 0.0
    accelerometer_bias: float = 0.0


def run_imu(
    truth: Trajectory, t_ns: Int64[np.ndarray, " N"], errors: ImuErrors, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "N 3"], Float[np.ndarray, "N 3"]]:
    """Angular rates and specific forces (N, 3) in the camera's frame at true times within the path.

    truth: X_WC at 200 Hz or finer. Derivatives are central differences over its own samples.
    """
    t = (truth.t_ns - truth.t_ns[0]) / 1e9
    R = Rotation.from_quat(truth.q, scalar_first=True)
    w = (R[:-1].inv() * R[1:]).as_rotvec() / np.diff(t)[:, None]
    a = np.gradient(np.gradient(truth.p, t, axis=0), t, axis=0)
    a_C = R.inv().apply(a + GRAVITY)
    at, mid = (t_ns - truth.t_ns[0]) / 1e9, 0.5 * (t[1:] + t[:-1])
    measured_w = _interpolate(at, mid, w) + rng.normal(0.0, 1.0, 3) * errors.gyro_bias
    measured_a = _interpolate(at, t, a_C) + rng.normal(0.0, 1.0, 3) * errors.accelerometer_bias
    measured_w += rng.normal(0.0, 1.0, measured_w.shape) * errors.gyro_noise
    measured_a += rng.normal(0.0, 1.0, measured_a.shape) * errors.accelerometer_noise
    return measured_w, measured_a


def _interpolate(at: np.ndarray, t: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.column_stack([np.interp(at, t, values[:, i]) for i in range(values.shape[1])])


MAP_M = 0.8
"""Distance that a camera moves before its map has to grow [m]."""


@dataclass(frozen=True, kw_only=True)
class Vio:
    """Error model of an odometry.

    walk_m, walk_deg: of position per axis and of yaw, per root of a metre of path [m, degrees].
    noise_m, noise_deg: of one pose, per axis. tilt_deg: a slow error of roll and pitch.
    scale: relative error of lengths. jumps_per_min: relocalisations of at most `jump_m` and `jump_deg`;
    limited_per_min, lost_per_min: intervals in which tracking is poor (the walk is three times as fast), or
    lost (the pose freezes, and recovers with a jump).
    """

    walk_m: float = 0.0
    walk_deg: float = 0.0
    noise_m: float = 0.0
    noise_deg: float = 0.0
    tilt_deg: float = 0.0
    scale: float = 0.0
    jumps_per_min: float = 0.0
    jump_m: float = 0.01
    jump_deg: float = 0.2
    limited_per_min: float = 0.0
    lost_per_min: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Jump:
    """A relocalisation at a true time [ns]: what follows is moved by p [m], and turned by yaw [rad]."""

    t_ns: int
    p: tuple[float, float, float]
    yaw: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Odometry:
    """What the device reports, at true times, and what is hidden: its world and its jumps."""

    said: Trajectory
    X_WV: pin.SE3
    jumps: tuple[Jump, ...] = field(default=())


def run_vio(
    truth: Trajectory,
    vio: Vio,
    rng: np.random.Generator,
    *,
    jumps: tuple[Jump, ...] = (),
    lost: tuple[tuple[int, int], ...] = (),
) -> Odometry:
    """Simulate the odometry of a camera's true path in W, at the same true times.

    jumps, lost: added to the random ones; lost are [begin, end) of true time [ns].
    """
    start = truth.p[0]
    yaw_V = rng.uniform(-np.pi, np.pi)
    X_WV = pin.SE3(pin.utils.rotate("z", yaw_V), start + rng.normal(0.0, 0.5, 3) * np.array([1.0, 1.0, 0.2]))
    minutes = (truth.t_ns[-1] - truth.t_ns[0]) / (60.0 * NS_PER_S)
    gone = _intervals(truth, rng, count=rng.poisson(vio.lost_per_min * minutes), seconds=(0.4, 1.0))
    for begin, end in lost:
        gone |= (truth.t_ns >= begin) & (truth.t_ns < end)
    limited = _intervals(truth, rng, count=rng.poisson(vio.limited_per_min * minutes), seconds=(0.5, 2.0))
    jumps += _draw_jumps(truth, vio, rng, count=rng.poisson(vio.jumps_per_min * minutes))
    p_W, R_W = _walk(truth, vio, rng, faster=limited | gone)
    for jump in jumps:
        after = truth.t_ns >= jump.t_ns
        if after.any():
            p_W, R_W = _jumped(p_W, R_W, after, jump)
    p_W = p_W + rng.normal(0.0, vio.noise_m, p_W.shape)
    noise = Rotation.from_rotvec(np.deg2rad(vio.noise_deg) * rng.normal(size=p_W.shape))
    R_VW = Rotation.from_matrix(X_WV.rotation.T)
    p_V, R_V = R_VW.apply(p_W - X_WV.translation), R_VW * R_W * noise
    q_V = _continuous(R_V.as_quat(scalar_first=True))
    p_V, q_V = _frozen(p_V, gone), _frozen(q_V, gone)
    reported = Trajectory(t_ns=truth.t_ns, p=p_V, q=q_V, tracking=_states(gone, limited))
    return Odometry(said=reported, X_WV=X_WV, jumps=jumps)


def _walk(
    truth: Trajectory, vio: Vio, rng: np.random.Generator, *, faster: Bool[np.ndarray, " N"]
) -> tuple[Float[np.ndarray, "N 3"], Rotation]:
    """The path with random walk, scale and tilt, still in W."""
    steps = np.diff(truth.p, axis=0)
    root, when = _progress(truth)
    times = np.where(faster[when], 3.0, 1.0) * root
    yaw = np.deg2rad(vio.walk_deg) * _eased(truth, when, rng.normal(size=len(root)) * times)
    drift = np.column_stack([_eased(truth, when, rng.normal(size=len(root)) * times) for _ in range(3)])
    turn = Rotation.from_euler("z", yaw[:, None])
    p = truth.p[0] + np.vstack([np.zeros(3), np.cumsum(turn[:-1].apply(steps), axis=0)])
    p = truth.p[0] + (p - truth.p[0]) * (1.0 + vio.scale) + vio.walk_m * drift
    tilt = np.deg2rad(vio.tilt_deg) * _slow(rng, truth.t_ns, columns=2)
    lean = Rotation.from_rotvec(np.column_stack([tilt, np.zeros(len(tilt))]))
    return p, lean * turn * Rotation.from_quat(truth.q, scalar_first=True)


def _progress(truth: Trajectory) -> tuple[Float[np.ndarray, " K"], Int64[np.ndarray, " K"]]:
    """Roots of the distances after which the map grows, and the samples at which it does."""
    roots, when, mapped = [], [], truth.p[0]
    for i, p in enumerate(truth.p):
        far = float(np.linalg.norm(p - mapped))
        if far > MAP_M:
            roots.append(np.sqrt(far))
            when.append(i)
            mapped = p
    return np.array(roots), np.array(when, dtype=np.int64)


def _eased(
    truth: Trajectory, when: Int64[np.ndarray, " K"], steps: Float[np.ndarray, " K"]
) -> Float[np.ndarray, " N"]:
    """The sum of steps, each taken within half a second after its sample."""
    t = truth.t_ns / NS_PER_S
    out = np.zeros(len(t))
    for i, step in zip(when.tolist(), steps.tolist(), strict=True):
        u = np.clip((t - t[i]) / 0.5, 0.0, 1.0)
        out += step * u * u * (3.0 - 2.0 * u)
    return out


def _slow(rng: np.random.Generator, t_ns: np.ndarray, *, columns: int) -> Float[np.ndarray, "N C"]:
    """Unit-variance noise that takes about five seconds to change."""
    t = (t_ns - t_ns[0]) / 1e9
    knots = np.arange(0.0, t[-1] + 10.0, 5.0)
    values = rng.normal(size=(len(knots), columns))
    return np.column_stack([np.interp(t, knots, values[:, i]) for i in range(columns)])


def _draw_jumps(truth: Trajectory, vio: Vio, rng: np.random.Generator, *, count: int) -> tuple[Jump, ...]:
    times = rng.integers(truth.t_ns[0], truth.t_ns[-1], size=count)
    jumps = []
    for t_ns in np.sort(times):
        x, y, z = rng.uniform(-vio.jump_m, vio.jump_m, 3)
        yaw = np.deg2rad(rng.uniform(-vio.jump_deg, vio.jump_deg))
        jumps.append(Jump(t_ns=int(t_ns), p=(float(x), float(y), float(z)), yaw=float(yaw)))
    return tuple(jumps)


def _jumped(
    p: np.ndarray, R: Rotation, after: Bool[np.ndarray, " N"], jump: Jump
) -> tuple[np.ndarray, Rotation]:
    """The path after a jump, turned about the camera's position at that time, and moved."""
    here, turn = p[np.argmax(after)], Rotation.from_euler("z", jump.yaw)
    moved = turn.apply(p - here) + here + np.array(jump.p)
    turned = (turn * R).as_quat()
    return np.where(after[:, None], moved, p), Rotation.from_quat(
        np.where(after[:, None], turned, R.as_quat())
    )


def _intervals(
    truth: Trajectory, rng: np.random.Generator, *, count: int, seconds: tuple[float, float]
) -> Bool[np.ndarray, " N"]:
    inside = np.zeros(len(truth.t_ns), dtype=bool)
    for _ in range(count):
        begin = rng.integers(truth.t_ns[0], truth.t_ns[-1])
        end = begin + round(rng.uniform(*seconds) * NS_PER_S)
        inside |= (truth.t_ns >= begin) & (truth.t_ns < end)
    return inside


def _frozen(values: np.ndarray, still: Bool[np.ndarray, " N"]) -> np.ndarray:
    """Lost rows repeat the last known one."""
    index = np.where(still, 0, np.arange(len(values)))
    return values[np.maximum.accumulate(index)]


def _continuous(q: Float[np.ndarray, "N 4"]) -> Float[np.ndarray, "N 4"]:
    """Quaternions without changes of sign from row to row."""
    flips = np.sign((q[1:] * q[:-1]).sum(axis=1))
    signs = np.concatenate([[1.0], np.cumprod(np.where(flips == 0.0, 1.0, flips))])
    return q * signs[:, None]


def _states(lost: Bool[np.ndarray, " N"], limited: Bool[np.ndarray, " N"]) -> UInt8[np.ndarray, " N"]:
    return np.where(lost, LOST, np.where(limited, LIMITED, OK)).astype(np.uint8)
