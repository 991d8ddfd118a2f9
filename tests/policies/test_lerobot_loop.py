"""What a row of LeRobot's means in time: the command sent then and held, so that our loop is its own."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.files import METADATA
from policies.lerobot.metadata import PolicyMetadata
from policies.load import load_policy
from robot_runtime import evaluate
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition, Numbers, RowTiming
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import InvalidValueError
from tests.evaluation.points import HORIZON, Point, point_info
from tests.policies import test_lerobot_types as types
from tests.policies.test_lerobot_describe import OURS, dataset, told

pytest.importorskip("lerobot", reason="whose loop it is")


@pytest.fixture(scope="module")
def act(tmp_path_factory) -> Path:
    return types.save("act", tmp_path_factory.mktemp("act"))


def save_point_policy(folder: Path) -> Path:
    """An ACT at random weights for the point: told where it is and what there is, it says where to go."""
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors

    small = types.CONFIGS["act"] | {"chunk_size": HORIZON, "n_action_steps": HORIZON}
    config = make_policy_config(
        "act",
        **small,
        device="cpu",
        input_features={
            "observation.state": PolicyFeature(FeatureType.STATE, (2,)),
            "observation.environment_state": PolicyFeature(FeatureType.ENV, (4,)),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (2,))},
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = get_policy_class("act")(config)
    plain = {
        key: {"mean": torch.zeros(n), "std": torch.full((n,), 0.4)}
        for key, n in (("observation.state", 2), ("observation.environment_state", 4), ("action", 2))
    }
    for part in (policy, *make_pre_post_processors(config, dataset_stats=plain)):
        part.save_pretrained(folder)
    info = point_info()
    spec = ActionSpec(fields=(Numbers(names=("x", "y")),), horizon=HORIZON, dt_ns=info.control_period_ns)
    schema = Schema(action_fields=spec.fields, measured={"action": 2}, environment_state_dim=4)
    PolicyMetadata(
        info=PolicyInfo(name="act point", action_spec=spec, schema=schema),
        state_names=("action.x", "action.y"),
        adds_origin=False,
    ).save(folder)
    return folder


def lerobots_own_loop(folder: Path, env: Point, *, seed: int) -> np.ndarray:
    """Every action that it sends in an episode."""
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    policy = get_policy_class("act").from_pretrained(folder).eval()
    before, after = make_pre_post_processors(policy.config, pretrained_path=str(folder))
    policy.reset()
    step = env.reset(seed)
    for _ in range(round(env.info.episode_ns / env.info.control_period_ns)):
        numbers = torch.tensor([step.state], dtype=torch.float32)
        seen = {"observation.state": numbers[:, :2], "observation.environment_state": numbers}
        action = after(policy.select_action(before(seen)))[0].numpy()
        step = env.step(np.clip(action.astype(float), -1.0, 1.0))
    return np.array(env.told)


def test_without_latency_whole_chunks_send_what_lerobots_own_loop_sends_bit_for_bit(tmp_path: Path):
    folder, env = save_point_policy(tmp_path / "act"), Point()
    policy = load_policy(folder)
    assert policy.info.action_spec.timing is RowTiming.SENT
    for seed in (0, 1):
        evaluate(policy, env, method="synchronous", seeds=[seed])
        ours = np.array(env.told)
        theirs = lerobots_own_loop(folder, Point(), seed=seed)
        assert np.ptp(ours, axis=0).min() > 0.0
        assert np.array_equal(ours, theirs)


def test_a_row_is_the_command_sent_unless_the_dataset_or_a_person_says_otherwise(act: Path, tmp_path: Path):
    assert told(act, dataset(tmp_path, OURS, OURS)).info.action_spec.timing is RowTiming.SENT
    reached = told(act, dataset(tmp_path, OURS, OURS), timing=RowTiming.REACHED)
    assert reached.info.action_spec.timing is RowTiming.REACHED
    assert load_policy(act).info.action_spec.timing is RowTiming.REACHED
    data = dataset(tmp_path, OURS, OURS)
    path = data / "meta" / "info.json"
    info = json.loads(path.read_text())
    info["features"]["action"]["info"] = {"timing": "reached"}
    path.write_text(json.dumps(info))
    assert told(act, data).info.action_spec.timing is RowTiming.REACHED
    assert told(act, data, timing=RowTiming.SENT).info.action_spec.timing is RowTiming.SENT
    info["features"]["action"]["info"] = {"timing": "soon"}
    path.write_text(json.dumps(info))
    with pytest.raises(InvalidValueError, match="expected an action reached or sent, got 'soon'"):
        told(act, data)


def test_a_file_that_does_not_say_means_the_command_sent_if_lerobot_has_trained_the_policy(
    act: Path, tmp_path: Path
):
    metadata = told(act, dataset(tmp_path, OURS, OURS))
    assert metadata.info.action_spec.fields == (JointPosition(2), GripperWidth())
    for features, timing in ((None, RowTiming.SENT), ({}, RowTiming.REACHED)):
        replace(metadata, features=None).save(act)
        data = json.loads((act / METADATA).read_text())
        del data["policy"]["action_spec"]["timing"]
        data["features"] = features
        (act / METADATA).write_text(json.dumps(data))
        assert PolicyMetadata.load(act).info.action_spec.timing is timing
