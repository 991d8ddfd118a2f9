"""Gymnasium's environments: read from what they say, told what they do not."""

import json
import sys

import numpy as np
import pytest

from robot_runtime import evaluate
from robot_runtime.core.values.action import Numbers
from robot_runtime.errors import EnvError, InvalidValueError, UnknownNameError
from robot_runtime.evaluation.evaluate import configured_env
from robot_runtime.evaluation.gymnasium_env import (
    GymnasiumEnv,
    GymnasiumSettings,
    make_gymnasium,
    make_lerobot,
)
from robot_runtime.evaluation.stepped_env import WAS_DONE
from tests.evaluation.points import NumbersPolicy, Point

gymnasium = pytest.importorskip("gymnasium")
HORIZON = 5
DT_NS = 50_000_000
TERMINATED = GymnasiumSettings(success="terminated")


class Reacher(gymnasium.Env):
    """Dict observations, two cameras, and whatever a test wants to break."""

    metadata = {"render_fps": 20, "render_modes": []}  # noqa: RUF012
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    observation_space = gymnasium.spaces.Dict(
        agent=gymnasium.spaces.Box(-1.0, 1.0, (2,)),
        time=gymnasium.spaces.Box(0.0, 9.0, (1,)),
        pixels=gymnasium.spaces.Dict(top=gymnasium.spaces.Box(0, 255, (6, 8, 3), np.uint8)),
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.t = self.np_random.uniform(-1, 1, 2).astype(np.float32), 0
        return self.shown(), {}

    def step(self, action):
        assert action.dtype == np.float32
        self.at, self.t = self.at + 0.1 * (action - self.at), self.t + 1
        return self.shown(), 0.0, False, False, {"is_success": self.t >= 5, "t_steps": self.t}

    def shown(self):
        picture = np.full((6, 8, 3), self.t, np.uint8)
        return {"agent": self.at, "time": np.array([self.t / 20], np.float32), "pixels": {"top": picture}}


gymnasium.register("PointReacher-v0", entry_point=Reacher, max_episode_steps=30)


def swinging(state):
    return np.outer(np.arange(HORIZON) + 1, [0.3 * state[2]])


def pendulum_policy() -> NumbersPolicy:
    fields = (Numbers(names=("action_1",)),)
    return NumbersPolicy(swinging, fields, num_state=3, horizon=HORIZON, dt_ns=round(1e9 / 30))


def test_without_latency_a_real_environment_is_told_what_its_own_loop_tells_it():
    class Kept(gymnasium.Wrapper):
        told: list = []  # noqa: RUF012

        def step(self, action):
            self.told.append(action.copy())
            return super().step(action)

    policy, seed = pendulum_policy(), 7
    env = Kept(gymnasium.make("Pendulum-v1", max_episode_steps=60))
    evaluate(policy, GymnasiumEnv(env, TERMINATED), method="synchronous", seeds=[seed])
    plain, left, theirs = gymnasium.make("Pendulum-v1", max_episode_steps=60), [], []
    observation, _ = plain.reset(seed=seed)
    for _ in range(60):
        left = left or list(np.clip(policy.rows(observation.astype(float)), -2.0, 2.0))
        theirs.append(left.pop(0).astype(np.float32))
        observation, *_ = plain.step(theirs[-1])
    assert np.array_equal(env.told, theirs)


def test_names_cameras_and_success_are_read_from_the_environment():
    env = make_gymnasium("PointReacher-v0")
    assert env.info.state_names == ("agent_1", "agent_2", "time")
    assert env.info.schema.cameras == {"top": (6, 8)}
    assert env.info.control_period_ns == 50_000_000
    assert env.info.episode_ns == 30 * 50_000_000
    policy = NumbersPolicy(
        lambda s: np.tile(s[:2], (HORIZON, 1)), env.info.schema.action_fields, num_state=3, horizon=HORIZON,
        dt_ns=50_000_000,
    )  # fmt: skip
    done = evaluate(policy, env, trace=100.0, seeds=range(2))
    assert [result.score.completion_s for result in done.episodes] == [0.25, 0.25]
    assert done.episodes[0].score.metrics["t_steps"] == 30.0


def test_the_only_picture_has_the_name_that_lerobot_gives_it():
    class Seeing(gymnasium.Env):
        metadata = {"render_fps": 10}  # noqa: RUF012
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        observation_space = gymnasium.spaces.Dict(
            pixels=gymnasium.spaces.Box(0, 255, (96, 96, 3), np.uint8),
            agent_pos=gymnasium.spaces.Box(0.0, 512.0, (2,)),
        )

    env = GymnasiumEnv(Seeing(), GymnasiumSettings(max_steps=300))
    assert env.info.schema.cameras == {"image": (96, 96)}


def test_what_is_not_said_is_told_in_a_small_file(tmp_path):
    path = tmp_path / "env.json"
    path.write_text(json.dumps({"state": ["agent"], "action_names": ["x", "y"], "state_names": ["x", "y"],
                                "control_hz": 5, "max_steps": 10, "task": "reach"}))  # fmt: skip
    info = make_gymnasium("PointReacher-v0", GymnasiumSettings.load(path)).info
    assert (info.state_names, info.control_hz, info.episode_ns, info.task) == (
        ("x", "y"),
        5.0,
        2 * 10**9,
        "reach",
    )
    toml = tmp_path / "env.toml"
    toml.write_text('success = "terminated"\n')
    assert GymnasiumSettings.load(toml).success == "terminated"
    toml.write_text("max_steps = 'many'\n")
    with pytest.raises(InvalidValueError, match="got `str`"):
        GymnasiumSettings.load(toml)
    toml.write_text("sucess = 1\n")
    with pytest.raises(InvalidValueError, match="sucess; valid: action_names"):
        GymnasiumSettings.load(toml)


@pytest.mark.parametrize(
    ("env_id", "told", "words"),
    [
        ("CartPole-v1", {}, r"action space is Discrete\(2\); expected a Box"),
        ("FrozenLake-v1", {}, "expected a Box"),
        ("Nothing-v9", {}, "cannot make 'Nothing-v9'"),
        ("gym_nowhere/X-v0", {}, "no package gym_nowhere: pip install gym-nowhere"),
        ("Pendulum-v1", {"kwargs": {"wind": 3}}, "does not take kwargs"),
        ("Pendulum-v1", {"action_names": ("a", "b")}, "2 names are declared for 1 actions"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(env_id, told, words):
    with pytest.raises(InvalidValueError, match=words):
        make_gymnasium(env_id, GymnasiumSettings(**told))


def test_an_observation_that_is_no_box_is_named():
    class Odd(Reacher):
        observation_space = gymnasium.spaces.Dict(hand=gymnasium.spaces.Discrete(3))

    gymnasium.register("Odd-v0", entry_point=Odd, max_episode_steps=3)
    with pytest.raises(InvalidValueError, match=r"observation space at 'hand' is Discrete\(3\)"):
        make_gymnasium("Odd-v0")
    with pytest.raises(UnknownNameError, match="valid: agent"):
        make_gymnasium("PointReacher-v0", GymnasiumSettings(state=("hand",)))


def test_an_environment_that_never_says_whether_it_succeeded_has_to_be_told():
    with pytest.raises(
        EnvError, match=r'Pendulum-v1 does not report whether .* success with --env-file .* "none"'
    ):
        evaluate(pendulum_policy(), make_gymnasium("Pendulum-v1"), seeds=[1])


def test_the_rewards_are_summed_up_and_an_environment_may_have_no_success():
    done = evaluate(
        pendulum_policy(), make_gymnasium("Pendulum-v1", GymnasiumSettings(success="none")),
        method="synchronous", seeds=[7, 8],
    )  # fmt: skip
    returns = []
    for seed in (7, 8):
        env, left, total = gymnasium.make("Pendulum-v1"), [], 0.0
        observation, _ = env.reset(seed=seed)
        for _ in range(200):
            left = left or list(np.clip(pendulum_policy().rows(observation.astype(float)), -2.0, 2.0))
            observation, reward, *_ = env.step(left.pop(0).astype(np.float32))
            total += float(reward)
        returns.append(total)
    assert [result.score.metrics["return"] for result in done.episodes] == returns
    summary = done.summary()
    assert (summary["success"], summary["success_interval_95"]) == (None, None)
    assert np.isnan(done.success)
    assert json.loads(done.to_json())["failed_seeds"] == []


class Slow(Reacher):
    """Says neither its time limit nor its time step."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain


@pytest.mark.parametrize("env", [Slow, Slow()])
def test_an_environment_of_ones_own_is_told_in_python_what_it_does_not_say(env):
    policy = NumbersPolicy(
        lambda s: np.tile(s[:2], (HORIZON, 1)), (Numbers(names=("action_1", "action_2")),), num_state=3,
        horizon=HORIZON, dt_ns=50_000_000,
    )  # fmt: skip
    told: dict[str, object] = {"control_hz": 20, "max_steps": 12}
    done = evaluate(policy, env, env_settings=told, seeds=[1])
    assert done.episodes[0].score.metrics["t_steps"] == 12.0
    with pytest.raises(InvalidValueError, match="set max_steps with --env-file, in Python with env_settings"):
        evaluate(policy, env, env_settings={"control_hz": 20}, seeds=[1])
    with pytest.raises(InvalidValueError, match="env_settings has max_step; valid: action_names"):
        evaluate(policy, env, env_settings={"max_step": 20}, seeds=[1])


def test_settings_are_for_environments_with_gymnasiums_interface():
    with pytest.raises(InvalidValueError, match="Point declares what it is in its info"):
        evaluate(pendulum_policy(), Point, env_settings={"max_steps": 3}, seeds=[1])
    with pytest.raises(InvalidValueError, match="kwargs are of a class or function"):
        evaluate(pendulum_policy(), Slow(), env_settings={"kwargs": {"gain": 2.0}}, seeds=[1])
    assert (
        configured_env(Slow, GymnasiumSettings(kwargs={"gain": 2.0}, control_hz=5, max_steps=3))()._env.gain
        == 2.0
    )


def test_of_lerobots_environments_those_with_an_id_are_made_and_others_said_to_be_none():
    pytest.importorskip("lerobot")
    with pytest.raises(UnknownNameError, match="valid: aloha, "):
        make_lerobot("nowhere")
    with pytest.raises(InvalidValueError, match="makes 'libero' by code of its own"):
        make_lerobot("libero")


@pytest.mark.parametrize(("value", "succeeds"), [(np.float32(1.0), True), (0, False), (np.bool_(True), True)])
def test_a_success_may_be_a_number_of_zero_or_one(value, succeeds):
    class Numbered(Reacher):
        def step(self, action):
            return (*super().step(action)[:4], {"is_success": value})

    env = GymnasiumEnv(Numbered(), GymnasiumSettings(max_steps=3))
    env.reset(0)
    assert env.step(np.zeros(2)).is_success is succeeds


@pytest.mark.parametrize("value", [0.5, "yes", [True, True], None])
def test_a_success_that_is_neither_true_nor_false_is_refused(value):
    class Vague(Reacher):
        def step(self, action):
            return (*super().step(action)[:4], {"is_success": value})

    env = GymnasiumEnv(Vague(), GymnasiumSettings(max_steps=3))
    env.reset(0)
    with pytest.raises(EnvError, match=r"info\['is_success'\] is .*; a success is True or False"):
        env.step(np.zeros(2))


@pytest.mark.parametrize("env_id", ["own_envs/Reach-v0", "own_envs:Reach-v0"])
def test_an_id_without_a_namespace_is_found_behind_the_package_that_registers_it(
    tmp_path, monkeypatch, env_id
):
    (tmp_path / "own_envs.py").write_text(
        "import gymnasium\nfrom tests.evaluation.test_gymnasium import Reacher\n"
        "gymnasium.register('Reach-v0', entry_point=Reacher, max_episode_steps=30)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert make_gymnasium(env_id).info.state_names[:2] == ("agent_1", "agent_2")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "import nowhere_to_be_found",
            "broken_envs cannot be imported: No module named 'nowhere_to_be_found'",
        ),
        ("1 / 0", "broken_envs cannot be imported: ZeroDivisionError: division by zero"),
        (
            "import gymnasium\ngymnasium.register('Bad-v0', entry_point=lambda: 1 / 0)",
            r"broken_envs/Bad-v0 fails when it is made: ZeroDivisionError .* \(.*broken_envs.py:2\)",
        ),
    ],
)
def test_a_package_or_an_environment_that_fails_is_one_sentence(tmp_path, monkeypatch, code, words):
    (tmp_path / "broken_envs.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_envs", raising=False)
    with pytest.raises(InvalidValueError, match=words):
        make_gymnasium("broken_envs/Bad-v0")


def test_a_figure_of_the_env_does_not_replace_one_of_the_evaluation():
    class Named(Reacher):
        def step(self, action):
            *rest, _ = super().step(action)
            return (*rest, {"success": self.t == 2, "episodes": 77})

    fields = (Numbers(names=("action_1", "action_2")),)
    still = NumbersPolicy(lambda s: np.zeros((HORIZON, 2)), fields, num_state=3, horizon=HORIZON, dt_ns=DT_NS)
    done = evaluate(still, Named, seeds=range(2), env_settings={"max_steps": 4, "any_success": True})
    summary = done.summary()
    assert (done.success, summary["success"], summary["episodes"]) == (1.0, 1.0, 2)
    assert (summary["env_success"], summary["env_episodes"]) == (0.0, 77.0)
    late = evaluate(still, Named, seeds=range(2), env_settings={"max_steps": 4})
    assert late.success == 0.0
    assert {result.score.why for result in late.episodes} == {WAS_DONE}
