"""`WebXrTeleoperator`: a phone or a headset as a teleoperator."""

import contextlib
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pinocchio as pin

from drivers.child import Child
from drivers.teleop_hand import GRIPPER_SPEED, check_speeds
from drivers.webxr.messages import Config, Hand, Report, RunStatus, Sticks
from robot_runtime.core.orders import Arm, BeginEpisode, EndEpisode, Order, Outcome, Reset, Stop
from robot_runtime.core.teleop import (
    BaseLead,
    GripperLead,
    Lead,
    LeadableParts,
    LedRun,
    PartLead,
    PoseLead,
    TwistLead,
)
from robot_runtime.core.values.transforms import pose_from_quaternion
from robot_runtime.errors import DriverError, InvalidValueError

_R_LX = np.array([[0.0, 0.0, -1.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
"""WebXR's axes (right, up, back) in the robot's (ahead, left, up)."""
ORDERS: dict[str, Order] = {
    "arm": Arm(),
    "stop": Stop(),
    "reset": Reset(),
    "begin": BeginEpisode(),
    "success": EndEpisode(Outcome.SUCCESS),
    "failure": EndEpisode(Outcome.FAILURE),
    "discard": EndEpisode(Outcome.OPERATOR_ABORT, keep=False),
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class WebXrTeleoperator:
    """Serves the page and reads its messages; one page has control at a time."""

    name = "webxr"
    buttons = ("press arm on the page", "press reset on the page")

    def __init__(
        self,
        *,
        host: str = "0.0.0.0",
        port: int = 8443,
        token: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        speed: float = 0.2,
        turn: float = 0.8,
        base_speed: float = 0.4,
        base_turn: float = 0.8,
        arm: str | None = None,
        stale_ms: float = 250.0,
    ) -> None:
        """
        host: to listen on; 0.0.0.0: all of this machine's addresses. port: 0 takes a free one.
        token: required for access; None: a new random one.
        certificate, key: files, for https; None: a self-signed one is made for this run. Browsers
            warn of it once. On 127.0.0.1 it is plain http, which they accept as safe there.
        speed, turn: of the end effector, at full deflection of a touch screen's sticks [m/s], [rad/s].
        base_speed, base_turn: of the base, by sticks.
        arm: the one that a phone, or the right controller of a robot with one arm, drives.
        stale_ms: messages older than this are dropped [ms].
        DriverError: the port is not available, or no certificate could be made.
        """
        check_speeds(self.name, speed=speed, turn=turn, base_speed=base_speed, base_turn=base_turn)
        if not 0 <= port <= 65_535:
            raise InvalidValueError(f"webxr: port is from 0 to 65535, got {port!r:.60}")
        if token is not None and (len(token) < 8 or not token.isalnum()):
            raise InvalidValueError("webxr: token is 8 letters and digits or more")
        if (certificate is None) != (key is None):
            raise InvalidValueError("webxr: certificate and key are given together")
        self._speed, self._turn, self._base = speed, turn, np.array([base_speed, base_speed, base_turn])
        self._arm, self._parts, self._num_orders = arm, LeadableParts(), 0
        self._opened = contextlib.ExitStack()
        token = secrets.token_hex(8) if token is None else token
        is_plain = host in LOOPBACK and certificate is None
        if not is_plain and certificate is None:
            folder = Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="webxr-")))
            certificate, key = made_certificate(folder, addresses(host))
        config = Config(
            host=host,
            port=port,
            token=token,
            certificate=certificate or "",
            key=key or "",
            stale_ms=stale_ms,
        )
        self._child: Child[RunStatus, Report] = Child(
            "drivers.webxr.server_process", config, RunStatus, Report, what="the page of webxr"
        )
        self._opened.callback(self._child.close)
        port = int(self._child.greeting.split()[0])
        scheme = "http" if is_plain else "https"
        self.urls = [f"{scheme}://{each}:{port}/?token={token}" for each in addresses(host)]
        """Addresses of the page."""

    @property
    def help(self) -> str:
        """The page's address, and its use."""
        return "\n".join(
            [
                f"open on the phone or in the headset: {'  or  '.join(self.urls)}",
                "hold the clutch (a finger on the screen, the grip of a controller) and move it",
            ]
        )

    def open(self, parts: LeadableParts) -> None:
        """Take the parts. InvalidValueError: nothing to drive, or not the requested arm."""
        if not parts.hands and not parts.bases:
            raise InvalidValueError(
                "webxr drives end effectors and bases, and this robot has neither: no kinematics of "
                f"{', '.join(parts.arms) or 'any arm'} (Robot(hand_pose=...), [parts.NAME.kinematics])"
            )
        if self._arm is not None and self._arm not in parts.hands:
            raise InvalidValueError(
                f"webxr: the end effector of {self._arm!r} cannot be driven; those that can are "
                f"{', '.join(parts.hands) or 'none'}"
            )
        self._parts = parts
        self._child.orders.put(RunStatus(parts=parts.hands, bases=parts.bases))

    def show_run(self, run: LedRun) -> None:
        """Show the state of the run on the page."""
        self._child.orders.put(
            RunStatus(
                parts=self._parts.hands,
                bases=self._parts.bases,
                mode=run.mode.value,
                cause=run.cause,
                led=bool(run.led),
                episode=run.episode,
                refused=run.refused[:200],
            )
        )

    def read(self) -> Lead:
        """Return the page's last state. DriverError: its server has ended."""
        if ended := self._child.ended:
            raise DriverError(f"the page of webxr: {ended}")
        report = self._child.report()
        parts, engaged = dict[str, PartLead](), dict[str, bool]()
        for name, hand in report.hands.items():
            if (arm := self._arm_of(name, report)) is not None:
                self._add_hand(parts, engaged, arm, hand)
        if report.sticks is not None:
            self._add_sticks(parts, engaged, report.sticks)
        if report.base is not None and self._parts.bases:
            base = self._parts.bases[0]
            parts[base] = BaseLead(V_WB_B=self._base * report.base)
            engaged[base] = any(abs(each) > 0.0 for each in report.base)
        new = [name for number, name in report.orders if number > self._num_orders]
        self._num_orders = max([number for number, _ in report.orders], default=self._num_orders)
        orders = tuple(ORDERS[name] for name in new if name in ORDERS)
        return Lead(t_ns=report.t_ns, parts=parts, engaged=engaged, orders=orders)

    def close(self) -> None:
        """End the server; may be called twice."""
        self._opened.close()

    def _arm_of(self, hand: str, report: Report) -> str | None:
        """Return the arm that a controller drives: the one of its side, or the only one."""
        hands = self._parts.hands
        if self._arm is not None:
            is_it = hand != "left" or len(report.hands) == 1
            return self._arm if is_it else None
        if hand in ("left", "right") and f"{hand}_arm" in hands:
            return f"{hand}_arm"
        if not hands or (hand == "left" and "right" in report.hands):
            return None
        return hands[-1] if hand == "right" else hands[0]

    def _add_hand(self, parts: dict[str, PartLead], engaged: dict[str, bool], arm: str, hand: Hand) -> None:
        X_XH = pose_from_quaternion(np.array(hand.p), np.array(hand.q))
        parts[arm] = PoseLead(X_LH=pin.SE3(_R_LX, np.zeros(3)) * X_XH)
        engaged[arm] = hand.clutch
        gripper = self._parts.gripper_of(arm)
        if gripper is not None and hand.grip is not None:
            parts[gripper] = GripperLead(opening=1.0 - hand.grip)
            engaged[gripper] = hand.clutch

    def _add_sticks(self, parts: dict[str, PartLead], engaged: dict[str, bool], sticks: Sticks) -> None:
        (ahead, left), (up, turn) = sticks.left, sticks.right
        if sticks.base and self._parts.bases:
            base = self._parts.bases[0]
            parts[base] = BaseLead(V_WB_B=self._base * np.array([ahead, left, turn]))
            engaged[base] = sticks.held
        arm = self._arm or (self._parts.hands[0] if self._parts.hands else None)
        if arm is None:
            return
        if not sticks.base:
            v = self._speed * np.array([ahead, left, up])
            parts[arm] = TwistLead(v=v, w=np.array([0.0, 0.0, self._turn * turn]))
            engaged[arm] = sticks.held
        gripper = self._parts.gripper_of(arm)
        if gripper is not None:
            parts[gripper] = GripperLead(speed=GRIPPER_SPEED * sticks.grip)
            engaged[gripper] = sticks.held


def addresses(host: str) -> list[str]:
    """Return addresses of this machine at which the page may be reached."""
    if host not in ("0.0.0.0", "::", ""):
        return [host]
    found: list[str] = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.connect(("192.0.2.1", 9))  # nothing is sent: this finds the address that others see
        found.append(out.getsockname()[0])
    return [*found, "127.0.0.1"]


def made_certificate(folder: Path, names: list[str]) -> tuple[str, str]:
    """Make a self-signed certificate for a month, and its key: files. DriverError: no openssl."""
    if shutil.which("openssl") is None:
        raise DriverError(
            "webxr: https needs a certificate, and openssl, which makes one, is not installed: "
            "sudo apt install openssl, or certificate= and key="
        )
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    alternatives = ",".join(f"IP:{each}" if each[0].isdigit() else f"DNS:{each}" for each in names)
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", str(key), "-out", str(certificate), "-days", "30", "-subj", "/CN=robot-runtime",
        "-addext", f"subjectAltName={alternatives}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DriverError(f"webxr: openssl made no certificate: {done.stderr.strip()[-300:]}")
    return str(certificate), str(key)
