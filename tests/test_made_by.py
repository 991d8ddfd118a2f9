"""What an evaluation writes says how to make it again."""

import json
import platform
from importlib import metadata

import numpy as np

from robot_runtime.results import result_json


def test_a_result_names_its_date_command_seeds_versions_and_commit():
    data = json.loads(result_json({"success": 0.5}, seeds=range(3, 6)))
    assert data["success"] == 0.5
    made = data["made_by"]
    assert made["seeds"] == [3, 4, 5]
    assert made["python"] == platform.python_version()
    assert made["versions"]["numpy"] == np.__version__
    assert made["versions"]["robot-runtime"] == metadata.version("robot-runtime")
    assert made["date"].endswith("+00:00")
    assert {"command", "commit", "is_changed", "machine"} <= made.keys()
    assert (made["commit"] is None) == (made["is_changed"] is None)
