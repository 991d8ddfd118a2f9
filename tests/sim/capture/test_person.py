"""A person with a gripper in her hand does a household task, and no robot is there."""

import numpy as np
import pytest

from robot_runtime.errors import UnknownNameError
from sim.capture.performance import Performance
from sim.capture.person import perform
from sim.capture.scene import X_HE, build_scene
from sim.capture.things import environment_state, names_of
from sim.tasks import make_task
from sim.tasks.household import in_base


@pytest.fixture(scope="module")
def fetched() -> Performance:
    return perform("fetch", 3, film=False)


@pytest.mark.long
def test_a_person_brings_the_cup_to_the_tray(fetched: Performance) -> None:
    assert fetched.success
    assert 5.0 < fetched.duration_s < 30.0
    off = fetched.things["cup"][-1] - fetched.things["tray"][-1]
    assert np.abs(off).max() < 0.1


def test_there_is_no_robot_in_her_rooms() -> None:
    model = build_scene(make_task("clear"))
    names = {model.body(i).name for i in range(model.nbody)}
    assert {"hand", "base", "person_torso"} <= names
    assert not {name for name in names if name.startswith("fr3_")}


def test_the_wrist_camera_is_fixed_to_the_fingertips(fetched: Performance) -> None:
    i = len(fetched.t_ns) // 2
    assert (fetched.X_WH[i] * X_HE).isApprox(fetched.X_WE[i], 1e-9)


def test_points_told_in_the_base_give_the_scene_that_the_task_tells(fetched: Performance) -> None:
    assert set(names_of("fetch")) == set(fetched.things)
    x = fetched.x_WB[100]
    seen = environment_state("fetch", {name: in_base(x, p[100]) for name, p in fetched.things.items()})
    assert seen.shape == (make_task("fetch").schema.environment_state_dim,)
    assert np.allclose(np.linalg.norm(seen[8:].reshape(3, 2), axis=1), 1.0)


def test_cameras_have_no_steps(fetched: Performance) -> None:
    v = np.diff(fetched.X_WC.p, axis=0) / 0.004
    assert np.linalg.norm(np.diff(v, axis=0), axis=1).max() / 0.004 < 12.0


def test_another_task_is_named() -> None:
    with pytest.raises(UnknownNameError, match="clear, drawer, fetch, wipe"):
        perform("strike", 0)
