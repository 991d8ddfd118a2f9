"""End-effector poses, now and planned: `Hands` turns numbers of states and plans into what the scene draws.

measured    the columns arm.x, y, z and r1 to r6, in the base's frame
planned     end-effector poses: the same columns; joints: by the model, with E as it was measured on it

joints ─► link (model) ─► E:   X_LE = (X_WL)^-1 X_WE, from one state in which both are known
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.transforms import quaternion_from_rotation
from robot_runtime.page.body import Body, Placed, base_pose
from robot_runtime.page.scene import Scene
from robot_runtime.page.state import PageState, Plan

_ROTATION = tuple(f"r{i}" for i in range(1, 7))
_MAX_POINTS = 60


class Hands:
    """Draws the end effectors of one robot; one thread owns it."""

    def __init__(self, body: Body | None) -> None:
        self._body = body
        self._X_LE: dict[str, pin.SE3] = {}
        self._plan: Plan | None = None
        self._ways: dict[str, np.ndarray] = {}

    def draw(self, state: PageState, scene: Scene) -> None:
        """Show a state in the scene."""
        numbers = state.state
        if not numbers:
            return
        hands = {part: _placed(X) for part, X in measured_hands(numbers).items()}
        self._learn(numbers)
        bases = sorted({name.partition(".")[0] for name in numbers if name.endswith(".vx")})
        scene.show(numbers, hands, bases if self._body is None else ())
        scene.show_plan({**self._trails(state), **self._plans(state)})

    def _learn(self, numbers: Mapping[str, float]) -> None:
        """Learn where end effectors sit on the links of the model."""
        if self._body is None:
            return
        known = measured_hands(numbers)
        if set(known) <= set(self._X_LE):
            return
        placed = self._body.placed(numbers)
        for part, X_WE in known.items():
            if (link := self._body.hand_of(part)) is not None:
                self._X_LE[part] = placed[link].X.actInv(X_WE)

    def _trails(self, state: PageState) -> dict[str, np.ndarray]:
        out: dict[str, list[np.ndarray]] = {}
        step = max(1, len(state.trail) // _MAX_POINTS)
        for _, numbers in list(state.trail)[::step]:
            for part, X in measured_hands(numbers).items():
                out.setdefault(f"{part}/measured", []).append(X.translation.copy())
        return {name: np.array(points) for name, points in out.items()}

    def _plans(self, state: PageState) -> dict[str, np.ndarray]:
        """The rest of the newest answer; before its first row that runs, the plan was settled."""
        if state.plan is None or state.mode == "STOP":
            return {}
        if state.plan is not self._plan:
            self._plan, self._ways = state.plan, self._points(state.plan, state.state)
        out = {}
        for part, points in self._ways.items():
            due = state.plan.due_s
            left = due >= state.t_s
            settled = left & (np.arange(len(due)) <= state.plan.first_row)
            fresh = left & (np.arange(len(due)) >= state.plan.first_row)
            out[f"{part}/settled"] = points[settled]
            out[f"{part}/fresh"] = points[fresh]
        return out

    def _points(self, plan: Plan, now: Mapping[str, float]) -> dict[str, np.ndarray]:
        """(H, 3) of each end effector, or of a base without one, in the world."""
        num = len(plan.due_s)
        rows = [
            {**now, **{name: float(values[i]) for name, values in plan.columns.items()}} for i in range(num)
        ]
        parts = list(dict.fromkeys(name.partition(".")[0] for name in plan.columns))
        out: dict[str, np.ndarray] = {}
        for part in parts:
            if f"{part}.x" in plan.columns and f"{part}.z" in plan.columns:
                out[part] = np.array([base_pose(row).act(_xyz(row, part)) for row in rows])
            elif part in self._X_LE:
                out[part] = self._by_model(part, rows)
            elif f"{part}.yaw" in plan.columns and not self._X_LE:
                out[part] = np.array([[row[f"{part}.x"], row[f"{part}.y"], 0.01] for row in rows])
        return out

    def _by_model(self, part: str, rows: Iterable[Mapping[str, float]]) -> np.ndarray:
        assert self._body is not None
        link = self._body.hand_of(part)
        assert link is not None
        E = self._X_LE[part].translation
        return np.array([self._body.link_at(row, link).act(E) for row in rows])


def measured_hands(numbers: Mapping[str, float]) -> dict[str, pin.SE3]:
    """X_WE of every end effector that is measured."""
    out = {}
    X_WB = base_pose(numbers)
    for name in numbers:
        part, _, column = name.partition(".")
        if column == "r6":
            a, b = (np.array([numbers[f"{part}.{r}"] for r in _ROTATION[i : i + 3]]) for i in (0, 3))
            R = np.column_stack([a, b, np.cross(a, b)])
            out[part] = X_WB * pin.SE3(R, _xyz(numbers, part))
    return out


def _xyz(numbers: Mapping[str, float], part: str) -> np.ndarray:
    return np.array([numbers[f"{part}.{axis}"] for axis in "xyz"])


def _placed(X: pin.SE3) -> Placed:
    return Placed(p=np.array(X.translation), wxyz=quaternion_from_rotation(X.rotation))
