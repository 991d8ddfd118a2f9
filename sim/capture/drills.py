"""A session without physics, clip by clip: clocks joined, board looked at, lean, walk, and all of it again.

sync   lean   anchor   walk to a place, grip, walk on, ... and back   anchor   sync
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
"""Of the table that the board lies on [m]."""
CHEST_Z = HIPS_Z + float(X_TC.translation[2])
"""Of the chest camera over the floor, upright [m]."""
_BOARD_XY = (0.62, 0.0)
_STATION_S, _MOVE_S = 2.2, 0.9
_ORDER = {"sync": 1, "anchor": 2, "lean": 3, "walk": 4}


def session(
    seed: int, *, metres: Sequence[float] = (2.0,), faults: tuple[Fault, ...] = (), re_anchored: bool = True
) -> list[Take]:
    """Everything that a careful person does; one demonstration of each length of way [m].

    re_anchored: look at the board again at the end. faults: those that people make change the clips.
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
    """Both devices pressed together and turned about, eight seconds."""
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
    """Chest and hand look at the board from several sides, a while from each.

    frontal: straight on, always. apart: the hand looks when the chest has turned away.
    """
    centre = np.array([*_BOARD_XY, BOARD_Z])
    eye = np.array([0.02, 0.0, 0.0]) + np.array([X_TC.translation[0], 0.0, CHEST_Z])
    into = (centre - eye) / np.linalg.norm(centre - eye) if frontal else np.array([0.0, 0.0, -1.0])
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
    """To and fro, to both sides, and turned about, the feet still."""
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
    """Out along bends and back, with a reach and a grip at the far end and one at home; so long a way [m]."""
    legs = max(1, round(metres / 2.0 / 2.5))
    heading, places = rng.uniform(-0.6, 0.6) + np.pi, [np.array([-0.3, 0.1])]
    for _ in range(legs):
        step = metres / 2.0 / legs
        places.append(places[-1] + step * np.array([np.cos(heading), np.sin(heading)]))
        heading += rng.uniform(-1.0, 1.0)
    t, yaw = 0.0, 0.2
    body: list[Key] = []
    torso: list[Key] = []
    hand: list[Key] = []
    grips: list[tuple[float, float]] = []

    def stand(seconds: float) -> None:
        nonlocal t
        body.append((t, (*places_now, yaw)))
        t += seconds
        body.append((t, (*places_now, yaw)))

    places_now = places[0]
    stand(0.6)
    for target in [*places[1:], *places[-2::-1]]:
        way = target - places_now
        wanted = float(np.arctan2(way[1], way[0]))
        turn = (wanted - yaw + np.pi) % (2 * np.pi) - np.pi
        yaw += turn
        t += abs(turn) / 1.0
        body.append((t, (*places_now, yaw)))
        t += float(np.linalg.norm(way)) / speed
        places_now = target
        body.append((t, (*places_now, yaw)))
        if target is places[-1] or target is places[0]:
            _reach(t, torso, hand, grips, rng)
            stand(3.6)
    width = [(0.0, (0.08,))]
    for k, (begin, _) in enumerate(grips):
        width += [
            (begin + 0.6, (0.08 if k % 2 == 0 else 0.05,)),
            (begin + 1.0, (0.05 if k % 2 == 0 else 0.08,)),
        ]
    script = Script(seconds=t + 0.4, body=body, torso=torso, hand=hand, grips=grips, width=width)
    things = {
        "far": np.array([[*places[-1], 0.8]]) + np.array([[0.5, 0.0, 0.0]]),
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
    """Lean and reach down in front, grip for a second, and back."""
    near, far = (0.40, -0.12, 0.12), (0.62, rng.uniform(-0.2, 0.1), rng.uniform(-0.18, -0.08))
    turn = rng.normal(size=3) * np.array([0.1, 0.1, 0.25])
    for at, lean, place, angles in (
        (t, 0.0, near, np.zeros(3)),
        (t + 1.0, rng.uniform(10.0, 20.0), far, turn),
        (t + 2.6, rng.uniform(10.0, 20.0), far, turn),
        (t + 3.6, 0.0, near, np.zeros(3)),
    ):
        torso.append((at, (lean, 0.0, 0.0)))
        hand.append((at, (*place, *angles)))
    grips.append((t + 1.0, t + 2.6))


def _looking_at(
    centre: np.ndarray, outwards: np.ndarray, rng: np.random.Generator, *, frontal: bool
) -> pin.SE3:
    """The wrist camera 0.36 to 0.5 m from a board, aslant by 25 to 45 degrees, from anywhere about it."""
    tilt = np.deg2rad(rng.uniform(0.0, 3.0) if frontal else rng.uniform(25.0, 45.0))
    side = rng.uniform(0.5 * np.pi, 1.5 * np.pi)
    right = np.cross(outwards, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right)
    across = np.cos(side) * right + np.sin(side) * np.cross(outwards, right)
    way = np.cos(tilt) * outwards + np.sin(tilt) * across
    aim = centre + np.append(rng.uniform(-0.03, 0.03, 2), 0.0)
    return pin.SE3(looking(-way, (1.0, 0.2 * rng.normal(), 0.1)), aim + rng.uniform(0.36, 0.5) * way)


def _take(kind: str, walk: Walk, **more: object) -> Take:
    return Take(kind=kind, X_WC=walk.X_WC, X_WE=walk.X_WE, x_WG=walk.x_WG, width=walk.width, **more)  # type: ignore[arg-type]


def _rng(seed: int, what: str, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, _ORDER[what], number])
