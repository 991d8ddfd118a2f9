"""Glimpses: the robot anywhere in scenes drawn anew, with pictures and the truth, for what has to see.

In demonstrations the hand goes to where the cup is, so what learns from them alone can tell the cup from the
hand. On its own it is then never wrong: the hand goes to where it says that the cup is, and it says that the
cup is where the hand went. In a random view neither arm nor base say anything of where things are.

    half       a point of the scene where a demonstration had it from its base, the arm like in another
    half       a point about where a demonstration had it from the hand, at the height it stands at
    all        the base turned by any angle, and whatever can be done in parts done in part
"""

from collections.abc import Iterator, Mapping, Sequence

import mujoco
import numpy as np
from jaxtyping import Float
from msgspec import structs

from policies.flow.features import points_in_space, slices_of_points
from robot_runtime.core.values.state import Observation
from robot_runtime.core.values.transforms import turn_planar
from sim.scene.render import take_pictures
from sim.scene.task import DoneInParts
from sim.scene.world import World
from sim.tasks import make_task

ASIDE, ASIDE_OF_HAND = 0.1, 0.03
"""How far off a point is from where a demonstration had it from the base, and from the hand [m]."""
ARM_STD = 0.05
"""Of every joint, from a demonstration's [rad]."""
REACH = 0.25
"""What is so far from the hand at most is near it [m]."""
_MAX_TRIES = 20


def random_views(
    task_name: str,
    demonstrated: Sequence[Observation],
    *,
    num: int,
    seed: int,
    cameras: Mapping[str, tuple[int, int]],
) -> Iterator[Observation]:
    """Observations of a mobile robot with the exact scene; the same for the same arguments.

    demonstrated: arms and distances are drawn from these. cameras: (height, width) by name [pixels].
    """
    world = World(make_task(task_name))
    assert world.task.observation_noise is not None
    points = slices_of_points(world.task.observation_noise.points)
    in_space = points_in_space(world.task.observation_noise.points)
    reaching = [seen for seen in demonstrated if _from_hand(seen, in_space) is not None]
    for i in range(num):
        rng = np.random.default_rng([seed, 0x617, i])
        world.reset(int(rng.integers(2**31)))
        if isinstance(world.task, DoneInParts):
            world.task.randomize_progress(world, rng)
        if reaching and rng.random() < 0.5:
            _reach_again(world, rng, reaching, in_space)
        else:
            _stand_again(world, rng, demonstrated, points)
        mujoco.mj_forward(world.model, world.data)
        yield structs.replace(world.observe(exact=True), images=take_pictures(world, cameras))


def _stand_again(
    world: World, rng: np.random.Generator, demonstrated: Sequence[Observation], points: Sequence[slice]
) -> None:
    """A point about where a demonstration had it from its base, and the arm like in another."""
    there, arm = (demonstrated[int(k)] for k in rng.integers(len(demonstrated), size=2))
    _place_arm(world, rng, arm)
    point = points[int(rng.integers(len(points)))]
    p_B = there.environment_state[point][:2] + ASIDE * rng.standard_normal(2)
    _place_base(world, point, p_B, yaw=rng.uniform(-np.pi, np.pi))


def _reach_again(
    world: World, rng: np.random.Generator, reaching: Sequence[Observation], in_space: Sequence[slice]
) -> None:
    """A point about where a demonstration had one from its hand, at the height where it stands now.

    What the hand carries is higher than it stands, so other moments are tried until one is not.
    """
    point = in_space[int(rng.integers(len(in_space)))]
    height = world.task.environment_state(world)[point][2]
    for k in rng.integers(len(reaching), size=_MAX_TRIES):
        again = reaching[int(k)]
        _place_arm(world, rng, again)
        p_BE = world.kinematics.forward(world.q).translation
        if abs(p_BE[2] - height) < REACH:
            break
    r_B = _from_hand(again, in_space)
    assert r_B is not None
    p_B = p_BE[:2] + r_B[:2] + ASIDE_OF_HAND * rng.standard_normal(2)
    _place_base(world, point, p_B, yaw=rng.uniform(-np.pi, np.pi))


def _from_hand(seen: Observation, in_space: Sequence[slice]) -> Float[np.ndarray, "3"] | None:
    """The nearest point from the hand, axes of B; None if none is within reach."""
    assert seen.state.X_BE is not None
    near = [seen.environment_state[point] - seen.state.X_BE.translation for point in in_space]
    nearest = min(near, key=lambda r: float(np.linalg.norm(r)))
    return nearest if np.linalg.norm(nearest) < REACH else None


def _place_arm(world: World, rng: np.random.Generator, like: Observation) -> None:
    """As in a demonstration, but for `ARM_STD`."""
    q = like.state.q + ARM_STD * rng.standard_normal(like.state.q.size)
    world.place_robot(q, float(like.state.gripper_width or 0.0))


def _place_base(world: World, point: slice, p_B: Float[np.ndarray, "2"], *, yaw: float) -> None:
    """Where the point of the scene is seen at `p_B`, at an angle in the world."""
    x_WB = world.x_WB
    p_W = x_WB[:2] + turn_planar(world.task.environment_state(world)[point][:2], x_WB[2])
    world.place_base(np.array([*(p_W - turn_planar(p_B, yaw)), yaw]))
