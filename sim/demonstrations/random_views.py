"""Random views: the robot anywhere in random scenes, with images and ground truth, to train estimators.

In demonstrations the end effector moves to the cup, so an estimator trained on them alone can infer the cup
from the arm. At run time that is circular: the arm moves to the estimate, and the estimate follows the arm.
In a random view neither arm nor base carry information on the positions of things.

    half       a point of the scene is where a demonstration had it from its base, the arm as in another
    half       a point is near where a demonstration had it from the end effector, at its present height
    all        the base is turned by any angle, and tasks that can be partly done are partly done
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
"""Deviations of a point from a demonstration's, relative to the base and to the end effector [m]."""
ARM_STD = 0.05
"""Standard deviation of every joint from a demonstration's [rad]."""
REACH = 0.25
"""Largest distance of points near the end effector [m]."""
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
            _place_by_hand(world, rng, reaching, in_space)
        else:
            _place_by_base(world, rng, demonstrated, points)
        mujoco.mj_forward(world.model, world.data)
        yield structs.replace(world.observe(exact=True), images=take_pictures(world, cameras))


def _place_by_base(
    world: World, rng: np.random.Generator, demonstrated: Sequence[Observation], points: Sequence[slice]
) -> None:
    """Place a point near where a demonstration had it from its base, with the arm of another one."""
    there, arm = (demonstrated[int(k)] for k in rng.integers(len(demonstrated), size=2))
    _place_arm(world, rng, arm)
    point = points[int(rng.integers(len(points)))]
    p_B = there.environment_state[point][:2] + ASIDE * rng.standard_normal(2)
    _place_base(world, point, p_B, yaw=rng.uniform(-np.pi, np.pi))


def _place_by_hand(
    world: World, rng: np.random.Generator, reaching: Sequence[Observation], in_space: Sequence[slice]
) -> None:
    """Place a point near where a demonstration had one from its end effector, at its present height.

    A carried object is higher than that, so moments are drawn until the heights match.
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
    """The nearest point relative to the end effector, axes of B; None if none is near."""
    assert seen.state.X_BE is not None
    near = [seen.environment_state[point] - seen.state.X_BE.translation for point in in_space]
    nearest = min(near, key=lambda r: float(np.linalg.norm(r)))
    return nearest if np.linalg.norm(nearest) < REACH else None


def _place_arm(world: World, rng: np.random.Generator, like: Observation) -> None:
    """Place the arm as in a demonstration, with noise of `ARM_STD`."""
    q = like.state.q + ARM_STD * rng.standard_normal(like.state.q.size)
    world.place_robot(q, float(like.state.gripper_width or 0.0))


def _place_base(world: World, point: slice, p_B: Float[np.ndarray, "2"], *, yaw: float) -> None:
    """Place the base so that the point of the scene is at `p_B`, at a yaw in the world."""
    x_WB = world.x_WB
    p_W = x_WB[:2] + turn_planar(world.task.environment_state(world)[point][:2], x_WB[2])
    world.place_base(np.array([*(p_W - turn_planar(p_B, yaw)), yaw]))
