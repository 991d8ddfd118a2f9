"""What a checkpoint of LeRobot's leaves unsaid is in the server's log."""

import json
from pathlib import Path

import pytest

from policies.lerobot.files import BEFORE
from policies.lerobot.load import warn_of_gaps
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec, JointPosition
from robot_runtime.core.values.schema import Schema

SPEC = ActionSpec(fields=(JointPosition(2),), horizon=4, dt_ns=50_000_000)


@pytest.mark.parametrize(
    ("tasks", "scene", "reads_words", "names_scene", "words"),
    [
        ((), 0, True, False, ["takes a task text and declares none", "--task TEXT"]),
        (("fold",), 0, True, False, []),
        ((), 0, False, False, []),
        ((), 4, False, False, ["takes the 4 numbers of observation.environment_state by position"]),
        ((), 4, False, True, []),
    ],
)
def test_a_language_policy_without_tasks_and_scene_numbers_without_names_get_a_line_each(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    tasks: tuple[str, ...],
    scene: int,
    reads_words: bool,
    names_scene: bool,
    words: list[str],
):
    steps = [{"registry_name": "tokenizer_processor", "config": {"tokenizer_name": "t"}}] * reads_words
    (tmp_path / BEFORE).write_text(json.dumps({"steps": steps}))
    schema = Schema.of(SPEC, environment_state_dim=scene)
    info = PolicyInfo(name="one", action_spec=SPEC, schema=schema, tasks=tasks)
    warn_of_gaps(info, tmp_path, names_scene=names_scene)
    assert len(caplog.records) == bool(words)
    assert all(word in caplog.text for word in words)
