"""An expert recorded in an env, a policy trained on what it did, and that policy evaluated there."""

import json
from pathlib import Path

import numpy as np
import pytest

from robot_runtime.cli import main
from robot_runtime.core.env import EnvStep
from robot_runtime.errors import EnvError, InvalidValueError
from robot_runtime.evaluation.steps import RecordedSteps, play_expert, record_steps
from tests.evaluation.points import HZ, Point, expert

HERE = Path(__file__).parent
POINT, EXPERT = f"{HERE / 'points.py'}:Point", f"{HERE / 'points.py'}:expert"


def test_a_record_has_what_was_shown_before_each_action_and_what_the_expert_said():
    steps = record_steps(Point(), expert, seeds=[3, 4])
    env = Point()
    shown, states = env.reset(3), []
    for _ in range(50):
        states.append(np.asarray(shown.state))
        shown = env.step(np.asarray(shown.state[2:]))
    assert steps.num_episodes == 2
    np.testing.assert_array_equal(steps.state[:50], states)
    np.testing.assert_array_equal(steps.actions[:50], np.array(states)[:, 2:])


def test_a_disturbance_leads_the_env_astray_and_not_the_record():
    calm, shaken = (play_expert(Point(), expert, seed=3, noise=noise) for noise in (0.0, 0.3))
    np.testing.assert_array_equal(shaken.actions, np.array(shaken.state)[:, 2:])
    assert np.abs(np.array(shaken.state) - np.array(calm.state)).max() > 0.05
    again = play_expert(Point(), expert, seed=3, noise=0.3)
    np.testing.assert_array_equal(again.state, shaken.state)


def test_a_record_comes_back_from_its_folder(tmp_path):
    steps = record_steps(Point(), expert, seeds=range(3))
    steps.save(tmp_path / "record")
    back = RecordedSteps.load(tmp_path / "record")
    np.testing.assert_allclose(back.actions, steps.actions, atol=1e-6)
    np.testing.assert_allclose(back.state, steps.state, atol=1e-6)
    assert back.schema.to_dict() == steps.schema.to_dict()
    assert (back.state_names, back.task) == (steps.state_names, steps.task)
    assert back.control_period_ns == round(1e9 / HZ)


def test_failed_episodes_are_left_out_and_an_expert_that_never_succeeds_is_told():
    with pytest.raises(InvalidValueError, match="succeeded in none of 2 episodes of point"):
        record_steps(Point(), lambda env: lambda step: np.full(2, -1.0), seeds=[1, 2])


def test_an_expert_that_says_no_action_is_told_what_was_expected():
    with pytest.raises(EnvError, match="step 0 of the expert: expected 2 finite numbers"):
        record_steps(Point(), lambda env: lambda step: np.zeros(3), seeds=[1])


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "steps.npz").write_bytes(b"no array")
    with pytest.raises(InvalidValueError, match="holds no recorded steps"):
        RecordedSteps.load(tmp_path)


def test_rows_of_a_demonstration_are_what_was_told_from_there_on_and_then_what_is_at_rest():
    pytest.importorskip("torch")
    from policies.flow.steps import demonstrations_of, spec_of

    steps = record_steps(Point(), expert, seeds=[3, 4])
    found = demonstrations_of(steps, spec_of(steps, horizon=8))
    np.testing.assert_array_equal(found[10].rows, steps.actions[10:18])
    np.testing.assert_array_equal(found[49].rows, np.repeat(steps.actions[49:50], 8, axis=0))
    np.testing.assert_array_equal(found[50].observation.environment_state, steps.state[50])
    np.testing.assert_array_equal(found[50].observation.state.measured["action"], steps.state[50][:2])
    with pytest.raises(InvalidValueError, match="cannot be rows of"):
        demonstrations_of(steps, spec_of(record_steps(Cart(), push, seeds=[1]), horizon=8))


class Cart:
    """Is pushed by steps, and stands where nobody pushes."""

    from tests.core.test_at_rest import Cart as _Cart

    info = _Cart.info

    def reset(self, seed: int) -> EnvStep:
        self.place = 0.0
        return EnvStep(state=[0.0])

    def step(self, action: np.ndarray) -> EnvStep:
        self.place += float(action[0])
        return EnvStep(state=[self.place], is_done=self.place >= 3.0, is_success=self.place >= 3.0)


def push(env: Cart):
    return lambda step: np.full(1, 0.75)


def test_past_its_episode_a_step_is_not_repeated():
    pytest.importorskip("torch")
    from policies.flow.steps import demonstrations_of, spec_of

    steps = record_steps(Cart(), push, seeds=[1])
    (*_, last) = demonstrations_of(steps, spec_of(steps, horizon=3))
    np.testing.assert_array_equal(last.rows, [[0.75], [0.0], [0.0]])


@pytest.mark.long
def test_a_user_records_trains_and_evaluates_with_three_commands(tmp_path, capsys):
    """With few steps: what is held is the way, and that the policy has learned something."""
    pytest.importorskip("torch")
    record, policy, result = (str(tmp_path / name) for name in ("record", "policy", "result.json"))
    told = ["--env", POINT, "--workers", "1"]
    assert (
        main(["record", *told, "--expert", EXPERT, "--noise", "0.1", "--episodes", "20", "--output", record])
        == 0
    )
    assert "20 of 20 episodes of point succeeded" in capsys.readouterr().out
    asked = [
        "--steps",
        "200",
        "--batch-size",
        "64",
        "--learning-rate",
        "0.01",
        "--width",
        "32",
        "--horizon",
        "8",
        "--max-delay",
        "4",
    ]
    assert main(["train", "--dataset", record, "--output", policy, *asked]) == 0
    late = ["--delay-ms", "200", "--episodes", "5", "--json", result]
    assert main(["eval", *told, "--policy", policy, "--method", "faster", *late]) == 0
    assert json.loads(Path(result).read_text())["summary"]["success"] >= 0.6


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["record", "--env", POINT], "--env and --expert go together"),
        (["record", "--env", POINT, "--expert", EXPERT, "--resume"], "go with our own tasks"),
        (["record", "--takeover", "--policy", "track", "--env", POINT], "--takeover records our tasks"),
        (["train", "--output", "x"], "--task selects what to learn"),
        (["train", "--task", "track", "--output", "x", "--horizon", "8"], "--horizon goes with"),
    ],
)
def test_options_that_do_not_go_together_are_told(command, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(command) != 0
    assert words in " ".join(capsys.readouterr().err.split())
