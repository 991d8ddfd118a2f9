"""A session without physics, clip by clip: clock sync, lean, board views, walks, board and sync again.

sync   lean   anchor   walk somewhere, grip, walk on, ... and back   anchor   sync
"""

from collections.abc import Sequence

import numpy as np
import pinocchio as pin

from calibration.board import Board
from sim.capture import faults as fault
from sim.capture.faults import Fault
from sim.capture.rig import BOARD
from sim.capture.takes import ANCHOR, DEMONSTRATION, LEAN, SYNC, Take
from sim.capture.walks import HIPS_Z, X_TC, Key, Script, Walk, held_by_hand, looking, perform, shaken

BOARD_Z = 0.75
"""Height of the table that the board lies on [m]."""
CHEST_Z = HIPS_Z + float(X_TC.translation[2])
"""Height of the chest camera over the floor when upright [m]."""
_BOARD_XY = (0.62, 0.0)
_STATION_S, _MOVE_S = 2.2, 0.9
_ORDER = {"sync": 1, "anchor": 2, "lean": 3, "walk": 4}


def session(
    seed: int, *, metres: Sequence[float] = (2.0,), faults: tuple[Fault, ...] = (), re_anchored: bool = True
) -> list[Take]:
    """The takes of a careful person; one demonstration for each path length in `metres`.

    re_anchored: view the board again at the end. faults: those made by people change the clips.
    """
    frontal = fault.find(faults, fault.FrontalAnchor) is not None
    apart = fault.find(faults, fault.BoardMoved) is not None
    takes = [
        sync_take(_rng(seed, "sync", 0)),
        lean_take(_rng(seed, "lean", 0)),
        anchor_take(_rng(seed, "anchor", 0), frontal=frontal, apart=apart),
    ]
    takes += [walk_take(_rng(seed, "walk", i), metres=each) for i, each in enumerate(metres)]
    if re_anchored:
        takes.append(anchor_take(_rng(seed, "anchor", 1), frontal=frontal))
    return [*takes, sync_take(_rng(seed, "sync", 1))]


def sync_take(rng: np.random.Generator) -> Take:
    """Both devices pressed together and turned about for eight seconds."""
    R = looking((1.0, 0.0, -0.3))
    X_WC = pin.SE3(R, np.array([0.35, 0.0, 1.15]))
    return _take(
        SYNC, shaken(8.0, X_WC, pin.SE3(pin.utils.rotate("y", 0.2), np.array([0.09, 0.02, -0.03])), rng)
    )


def anchor_take(
    rng: np.random.Generator,
    *,
    stations: int = 7,
    frontal: bool = False,
    apart: bool = False,
    board: Board = BOARD,
) -> Take:
    """Chest and wrist cameras view the board from several sides, pausing at each.

    frontal: always straight on. apart: the wrist camera views it after the chest has turned away.
    """
    centre = np.array([*_BOARD_XY, BOARD_Z])
    chest = np.array([0.02, 0.0, 0.0]) + np.array([X_TC.translation[0], 0.0, CHEST_Z])
    into = (centre - chest) / np.linalg.norm(centre - chest) if frontal else np.array([0.0, 0.0, -1.0])
    R_WB = looking(into, (1.0, 0.0, 0.0) if not frontal else (0.0, 0.0, 1.0))
    X_WB = pin.SE3(R_WB, centre - R_WB @ board.centre_B)
    t, body, torso, hand = 0.0, [], [], []
    for k in range(2 * stations if apart else stations):
        away = apart and k >= stations
        x, y = (0.02, 0.0) if frontal else (rng.uniform(-0.16, 0.14), rng.uniform(-0.22, 0.22))
        yaw = -1.2 * y + (1.6 if away else 0.0)
        lean = (2.0, 0.0, 0.0) if frontal else (rng.uniform(-2.0, 18.0), rng.uniform(-10.0, 10.0), 0.0)
        X_WH = _looking_at(centre, -into, rng, frontal=frontal)
        if apart and not away:
            X_WH = pin.SE3(looking((0.3, -1.0, -0.2)), np.array([0.1, -0.4, 0.9]))
        for at in (t + _MOVE_S, t + _STATION_S):
            body.append((at, (x, y, yaw)))
            torso.append((at, lean))
            hand.append((at, X_WH))
        t += _STATION_S
    walk = perform(Script(seconds=t, body=body, torso=torso), rng)
    return _take(ANCHOR, held_by_hand(walk, hand), X_WB=X_WB)


def lean_take(rng: np.random.Generator) -> Take:
    """Lean to and fro and to both sides, and turn, with the feet still."""
    torso = [(0.0, (0.0, 0.0, 0.0))]
    for angles in (
        (26.0, 0.0, 0.0),
        (-6.0, 0.0, 0.0),
        (8.0, 20.0, 0.0),
        (8.0, -20.0, 0.0),
        (4.0, 0.0, 35.0),
        (4.0, 0.0, -35.0),
        (0.0, 0.0, 0.0),
    ):
        torso.append((torso[-1][0] + 1.7, angles))
    script = Script(seconds=torso[-1][0] + 0.8, body=[(0.0, (-0.3, 0.1, 0.2))], torso=torso)
    return _take(LEAN, perform(script, rng))


def walk_take(rng: np.random.Generator, *, metres: float, speed: float = 0.55) -> Take:
    """Walk `metres` out along bends and back, with a reach and a grip at the far end and one at home."""
    legs = max(1, round(metres / 2.0 / 2.5))
    heading, corners = rng.uniform(-0.6, 0.6) + np.pi, [np.array([-0.3, 0.1])]
    for _ in range(legs):
        step = metres / 2.0 / legs
        corners.append(corners[-1] + step * np.array([np.cos(heading), np.sin(heading)]))
        heading += rng.uniform(-1.0, 1.0)
    t, yaw = 0.0, 0.2
    body: list[Key] = []
    torso: list[Key] = []
    hand: list[Key] = []
    grips: list[tuple[float, float]] = []

    def stay(seconds: float) -> None:
        nonlocal t
        body.append((t, (*here, yaw)))
        t += seconds
        body.append((t, (*here, yaw)))

    here = corners[0]
    stay(0.6)
    for target in [*corners[1:], *corners[-2::-1]]:
        leg = target - here
        wanted = float(np.arctan2(leg[1], leg[0]))
        turn = (wanted - yaw + np.pi) % (2 * np.pi) - np.pi
        yaw += turn
        t += abs(turn) / 1.0
        body.append((t, (*here, yaw)))
        t += float(np.linalg.norm(leg)) / speed
        here = target
        body.append((t, (*here, yaw)))
        if target is corners[-1] or target is corners[0]:
            _reach(t, torso, hand, grips, rng)
            stay(3.6)
    width = [(0.0, (0.08,))]
    for k, (begin, _) in enumerate(grips):
        width += [
            (begin + 0.6, (0.08 if k % 2 == 0 else 0.05,)),
            (begin + 1.0, (0.05 if k % 2 == 0 else 0.08,)),
        ]
    script = Script(seconds=t + 0.4, body=body, torso=torso, hand=hand, grips=grips, width=width)
    things = {
        "far": np.array([[*corners[-1], 0.8]]) + np.array([[0.5, 0.0, 0.0]]),
        "home": np.array([[0.2, 0.2, 0.8]]),
    }
    return _take(DEMONSTRATION, perform(script, rng), things=things)


def _reach(
    t: float,
    torso: list[Key],
    hand: list[Key],
    grips: list[tuple[float, float]],
    rng: np.random.Generator,
) -> None:
    """Lean and reach down in front, grip for a second, and return."""
    near, far = (0.40, -0.12, 0.12), (0.62, rng.uniform(-0.2, 0.1), rng.uniform(-0.18, -0.08))
    turn = rng.normal(size=3) * np.array([0.1, 0.1, 0.25])
    for at, lean, p, angles in (
        (t, 0.0, near, np.zeros(3)),
        (t + 1.0, rng.uniform(10.0, 20.0), far, turn),
        (t + 2.6, rng.uniform(10.0, 20.0), far, turn),
        (t + 3.6, 0.0, near, np.zeros(3)),
    ):
        torso.append((at, (lean, 0.0, 0.0)))
        hand.append((at, (*p, *angles)))
    grips.append((t + 1.0, t + 2.6))


def _looking_at(
    centre: np.ndarray, outwards: np.ndarray, rng: np.random.Generator, *, frontal: bool
) -> pin.SE3:
    """A pose of the wrist camera 0.36 to 0.5 m from the board, tilted by 25 to 45 degrees, from any side."""
    tilt = np.deg2rad(rng.uniform(0.0, 3.0) if frontal else rng.uniform(25.0, 45.0))
    side = rng.uniform(0.5 * np.pi, 1.5 * np.pi)
    right = np.cross(outwards, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right)
    across = np.cos(side) * right + np.sin(side) * np.cross(outwards, right)
    view = np.cos(tilt) * outwards + np.sin(tilt) * across
    aim = centre + np.append(rng.uniform(-0.03, 0.03, 2), 0.0)
    return pin.SE3(looking(-view, (1.0, 0.2 * rng.normal(), 0.1)), aim + rng.uniform(0.36, 0.5) * view)


def _take(kind: str, walk: Walk, **more: object) -> Take:
    return Take(kind=kind, X_WC=walk.X_WC, X_WE=walk.X_WE, x_WG=walk.x_WG, width=walk.width, **more)  # type: ignore[arg-type]


def _rng(seed: int, what: str, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, _ORDER[what], number])
