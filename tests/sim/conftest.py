"""Worlds are built once per task: compiling a scene is the slow part."""

import pytest

from sim.scene.world import World
from sim.tasks import make_task


@pytest.fixture(scope="session")
def track_world() -> World:
    return World(make_task("track"))


@pytest.fixture(scope="session")
def pick_place_world() -> World:
    return World(make_task("pick_place"))


@pytest.fixture(scope="session")
def strike_world() -> World:
    return World(make_task("strike"))


@pytest.fixture(scope="session")
def conveyor_world() -> World:
    return World(make_task("conveyor"))
