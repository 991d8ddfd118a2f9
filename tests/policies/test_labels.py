"""Demonstrations told in other rows."""

import numpy as np
import pytest

from policies.flow.labels import relabelled
from robot_runtime.core.values.action import ActionChunk
from robot_runtime.core.values.waypoints import Waypoints
from sim.demonstrations.demonstrations import collect
from sim.experts.mobile import MOBILE_SPEC, WORLD_SPEC


@pytest.mark.long
def test_rows_in_the_world_lead_to_the_same_commands():
    demonstrations = collect("fetch", num_episodes=1, seed=1)[::40]
    assert len(demonstrations) > 4
    for ours, theirs in zip(demonstrations, relabelled(demonstrations, MOBILE_SPEC, WORLD_SPEC), strict=True):
        assert theirs.num_committed == ours.num_committed
        led = [
            Waypoints.from_chunk(
                ActionChunk(spec=spec, rows=d.rows, anchor=d.observation.state, request_id=0, epoch=0)
            )
            for d, spec in ((ours, MOBILE_SPEC), (theirs, WORLD_SPEC))
        ]
        for name in ("p_BE", "quat_BE", "x_WB", "gripper"):
            np.testing.assert_allclose(getattr(led[0], name), getattr(led[1], name), atol=1e-6)
