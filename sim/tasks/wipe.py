"""`wipe`: wipe a marked area along a counter that is longer than the arm's reach, with a sponge on the hand.

y
|   [      counter                     ]     the counter's position and side, the area's position and
|       [  marked  area          ]           length, and the end to begin at are drawn for every episode
|     sponge ->
|    robot ->
+------------------------------------- x
"""

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.transforms import turn_planar
from sim.scene.kinematics import P_HAND_E, Q_HOME
from sim.scene.model import DT_NS, ROBOT
from sim.scene.task import ObservationNoise, Scorer, direction, point
from sim.scene.world import World
from sim.tasks.household import TABLE_Z, HouseholdScorer, add_table, in_base, mobile_schema, put

COUNTER_HALF = (1.2, 0.25)
AREA_WIDTH = 0.16
"""Width across the counter; its length is 1.0 to 1.5 [m]."""
SPONGE_HALF = (0.06, 0.045, 0.015)
"""Along x of the hand, along its opening, and in height [m]. At a counter, x points across it."""
SPONGE_BELOW = 0.045
"""Distance from E down to the sponge's wiping side, uncompressed [m]."""
CELL = 0.02
_TOUCH = 0.004
_WIPE_EVERY_NS = 10 * DT_NS
_MARK = 2 * CELL, AREA_WIDTH / 2
"""Size of one mark, along and across [m]."""
_NUM_MARKS = 38, 2


class Wipe:
    """The task of a counter with a marked area, and a sponge on the hand."""

    name = "wipe"
    instruction = "wipe the marked area of the counter"
    observation_noise, workspace_height = ObservationNoise(points=(3, 3)), TABLE_Z
    schema: Schema = mobile_schema(
        (*point("frontier"), *point("area_end"), *direction("along"), *direction("to_counter"))
    )
    episode_s = 40.0
    num_stages = 4
    """Quarters of the area."""

    def __init__(self) -> None:
        self._side, self._end = 1.0, 1.0
        self._corner, self._length = np.zeros(2), 1.0  # of the area, near the robot, where it begins
        self._wiped = np.zeros((1, 1), dtype=bool)

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        add_table(spec, "counter", half=COUNTER_HALF)
        for i, j in np.ndindex(_NUM_MARKS):
            mark = spec.worldbody.add_body(name=f"mark_{i}_{j}", mocap=True)
            mark.add_geom(
                type=mujoco.mjtGeom.mjGEOM_BOX,
                size=[0.5 * _MARK[0], 0.5 * _MARK[1], 0.0005],
                rgba=[0.75, 0.35, 0.55, 1.0],
                contype=0,
                conaffinity=0,
            )
        spec.body("hand").add_geom(
            name="sponge",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=list(SPONGE_HALF),
            pos=[0.0, 0.0, P_HAND_E[2] + SPONGE_BELOW - SPONGE_HALF[2]],
            mass=0.03,
            priority=1,
            friction=[0.15, 0.01, 0.001],
            solref=[-2000.0, -60.0],
            rgba=[0.95, 0.80, 0.25, 1.0],
            contype=ROBOT,
            conaffinity=0,
        )

    def reset(self, world: World, rng: np.random.Generator) -> None:
        self._side, self._end = rng.choice([-1.0, 1.0], size=2)
        counter = np.array([rng.uniform(-0.3, 0.3), self._side * rng.uniform(1.0, 1.3)])
        put(world, "counter", counter)
        self._length = CELL * round(rng.uniform(1.0, 1.5) / CELL)
        slack = 2 * COUNTER_HALF[0] - 0.2 - self._length
        along = 0.1 - COUNTER_HALF[0] + rng.uniform(0.0, slack)
        near = COUNTER_HALF[1] - rng.uniform(0.04, 0.10)
        first = along if self._end > 0 else along + self._length
        self._corner = counter + np.array([first, -self._side * near])
        cells = round(self._length / CELL), round(AREA_WIDTH / CELL)
        self._wiped = np.zeros(cells, dtype=bool)
        yaw = self._side * (0.5 * np.pi + rng.uniform(-0.4, 0.4))
        start_x = self._corner[0] + rng.uniform(-0.3, 0.3)
        world.place_base(np.array([start_x, -self._side * rng.uniform(0.0, 0.4), yaw]))
        world.place_robot(np.array(Q_HOME), 0.03)

    def randomize_progress(self, world: World, rng: np.random.Generator) -> None:
        """Wipe up to a random position, half of the time with missed spots."""
        n, m = self._wiped.shape
        up_to = int(rng.integers(n))
        self._wiped[:up_to] = True
        for _ in range(rng.integers(1, 4) if rng.random() < 0.5 else 0):
            column, row = rng.integers(n), rng.integers(m)
            self._wiped[column : column + rng.integers(1, 5), row : row + rng.integers(1, 4)] = False
        self.update(world)

    @property
    def _along(self) -> Float[np.ndarray, "2"]:
        return np.array([self._end, 0.0])

    @property
    def _across(self) -> Float[np.ndarray, "2"]:
        return np.array([0.0, self._side])

    def update(self, world: World) -> None:
        """Show each mark that covers an unwiped cell."""
        num, rows = round(_MARK[0] / CELL), np.arange(_NUM_MARKS[1])
        first = np.minimum(num * np.arange(_NUM_MARKS[0]), len(self._wiped) - num)  # the last ones coincide
        cells = self._wiped[first[:, None] + np.arange(num)].reshape(len(first), num, len(rows), -1)
        z = np.where(cells.all(axis=(1, 3)), -1.0, TABLE_Z)
        p = self._points(CELL * (first + num / 2), _MARK[1] * (rows + 0.5))
        begin = world.model.body("mark_0_0").mocapid[0]
        world.data.mocap_pos[begin : begin + z.size] = np.dstack([p, z]).reshape(-1, 3)

    def apply_event(self, world: World) -> int:
        """Mark cells under the touching sponge as wiped."""
        sponge = world.data.geom("sponge")
        if world.t_ns > world.t_start_ns and sponge.xpos[2] - SPONGE_HALF[2] < TABLE_Z + _TOUCH:
            self._wiped |= self._under(sponge.xpos[:2], sponge.xmat.reshape(3, 3)[:2, :2])
        return world.t_ns + _WIPE_EVERY_NS

    def _under(self, p: Float[np.ndarray, "2"], turn: Float[np.ndarray, "2 2"]) -> Bool[np.ndarray, "n m"]:
        """Cells with their centre under the sponge."""
        n, m = self._wiped.shape
        off = np.abs((self._points(CELL * (np.arange(n) + 0.5), CELL * (np.arange(m) + 0.5)) - p) @ turn)
        return (off[..., 0] < SPONGE_HALF[0]) & (off[..., 1] < SPONGE_HALF[1])

    def _points(self, s: Float[np.ndarray, " n"], t: Float[np.ndarray, " m"]) -> Float[np.ndarray, "n m 2"]:
        """World positions of distances along and across the area from its corner [m]."""
        return self._corner + s[:, None, None] * self._along + t[None, :, None] * self._across

    @property
    def frontier(self) -> float:
        """Length of the area that is wiped, from the corner [m]."""
        open_columns = np.flatnonzero(self._wiped.mean(axis=1) < 0.99)
        return self._length if not len(open_columns) else CELL * float(open_columns[0])

    def environment_state(self, world: World) -> Float[np.ndarray, "10"]:
        """In B: near edge of the area at the frontier and at its end (3 each) [m]; directions (2 each).

        Directions: along the area, towards the counter.
        """
        x_WB = world.x_WB
        points = [self._corner + share * self._along for share in (self.frontier, self._length)]
        return np.concatenate(
            [
                *(in_base(x_WB, np.array([*p, TABLE_Z])) for p in points),
                turn_planar(self._along, -x_WB[2]),
                turn_planar(self._across, -x_WB[2]),
            ]
        )

    def make_scorer(self, world: World) -> Scorer:
        return HouseholdScorer(self, t_start_ns=world.t_start_ns)

    def stage(self, world: World, reached: int) -> int:
        return int(self.num_stages * self._wiped.mean() + 0.02)

    def is_done(self, world: World) -> bool:
        """Whether 97 % of the area are wiped."""
        return bool(self._wiped.mean() >= 0.97)

    def is_lost(self, world: World) -> bool:
        return False
