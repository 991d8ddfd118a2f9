"""LeRobot's own policies, real classes at small size, trained for a moment and served."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import torch

from policies.files import METADATA
from policies.flow.features import FeatureConfig
from policies.lerobot.metadata import PolicyMetadata
from policies.load import load_policy
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import ClampedPrefix, ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ActionSpec, BasePose, EndEffectorPose, GripperWidth, Reference
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import CheckpointError, InvalidValueError
from robot_runtime.evaluation.delay import answers
from tests.policies.toy import Sample

pytestmark = pytest.mark.long

pytest.importorskip("lerobot", reason="serves LeRobot's policies")
pytest.importorskip("diffusers", reason="the Diffusion Policy needs it")

FIELDS = (BasePose(Reference.RELATIVE), EndEffectorPose(), GripperWidth())
SPEC = ActionSpec(fields=FIELDS, horizon=8, dt_ns=50_000_000)
SCHEMA = Schema(action_fields=FIELDS, num_joints=2, has_gripper=True, has_base=True, environment_state_dim=3)
FEATURES = FeatureConfig(points=(3,))


def observation(seed: int) -> Observation:
    rng = np.random.default_rng(seed)
    state = RobotState(
        t_ns=1, q=rng.normal(size=2), dq=np.zeros(2), X_BE=pin.SE3(np.eye(3), rng.normal(size=3)),
        gripper_width=0.04, x_WB=rng.normal(size=3), V_WB_B=rng.normal(size=3),
    )  # fmt: skip
    return Observation(state=state, environment_state=rng.normal(size=3), task="go there")


def towards(seen: Observation) -> np.ndarray:
    """Rows that lead the hand evenly to the point that is seen."""
    share = np.linspace(0.0, 1.0, SPEC.horizon)[:, None]
    here = seen.state.X_BE.translation
    hand = here + share * (seen.environment_state - here)
    constant = np.tile([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.03], (SPEC.horizon, 1))
    return np.column_stack([np.zeros((SPEC.horizon, 3)), hand, constant])


@pytest.fixture(scope="module", params=["act", "diffusion"])
def trained(request, tmp_path_factory) -> tuple[Path, list[float]]:
    from policies.lerobot.train import LeRobotTrainConfig, train_lerobot

    samples = [Sample(o, towards(o)) for o in map(observation, range(256))]
    losses: list[float] = []
    config = LeRobotTrainConfig(
        network=request.param, steps=150, batch_size=32, width=64, warmup_steps=10, learning_rate=2e-3
    )
    folder = train_lerobot(
        samples, config, schema=SCHEMA, action_spec=SPEC, features=FEATURES,
        folder=tmp_path_factory.mktemp("peers") / request.param,
        on_step=lambda step, loss: losses.append(loss),
    )  # fmt: skip
    return folder, losses


def ask(policy, seen: Observation, *, seed: int = 0) -> np.ndarray:
    return np.concatenate(
        list(policy.infer(ChunkRequest(observation=seen, sampler=ConstantSchedule(), seed=seed)))
    )


@pytest.mark.long
def test_it_learns_and_is_served_as_any_policy(trained):
    folder, losses = trained
    assert losses[-1] < 0.9 * losses[5]
    policy = load_policy(folder)
    assert (policy.info.schema, policy.info.action_spec, policy.info.tasks) == (SCHEMA, SPEC, ("go there",))
    rows = ask(policy, observation(300))
    assert rows.shape == (SPEC.horizon, SPEC.dim)
    assert np.isfinite(rows).all()


def test_its_last_rows_are_nearer_to_what_it_has_learned_than_standing_still_is(trained):
    policy, seen = load_policy(trained[0]), [observation(i) for i in range(20)]
    ends = np.array([o.environment_state for o in seen])
    here = np.array([o.state.X_BE.translation for o in seen])
    told = np.array([ask(policy, o)[-1, 3:6] for o in seen])
    assert np.abs(told - ends).mean() < 0.75 * np.abs(here - ends).mean()


def test_rows_count_from_where_the_robot_is(trained):
    policy, seen = load_policy(trained[0]), observation(7)
    (relative,) = policy.predict([seen], [5])
    origin = [0.0, 0.0, 0.0, *seen.state.X_BE.translation, *[0.0] * 7]
    np.testing.assert_allclose(ask(policy, seen, seed=5), relative + origin, atol=1e-6)


def test_batches_change_nothing_and_seeds_decide(trained):
    policy = load_policy(trained[0])
    requests = [ChunkRequest(observation=observation(i), seed=i) for i in range(5)]
    together = answers(policy, requests)
    for request, answer in zip(requests, together, strict=True):
        np.testing.assert_allclose(
            answer.rows, ask(policy, request.observation, seed=request.seed), atol=1e-5
        )
    assert policy.num_evaluations == 10 * (10 if "diffusion" in policy.info.name else 1)
    torch.manual_seed(3)
    again = ask(policy, observation(0), seed=0)
    np.testing.assert_array_equal(again, ask(policy, observation(0), seed=0))


def test_committed_rows_are_refused(trained):
    policy = load_policy(trained[0])
    with pytest.raises(InvalidValueError, match="takes no committed rows"):
        list(policy.infer(ChunkRequest(observation=observation(0), sampler=ClampedPrefix(), seed=0)))


def test_its_description_may_say_how_often_it_is_best_asked(trained, tmp_path):
    policy = load_policy(trained[0])
    assert policy.info.capabilities.execution_horizon is None
    said = PolicyMetadata.load(trained[0])
    info = replace(said.info, capabilities=Capabilities(execution_horizon=3))
    replace(said, info=info).save(tmp_path)
    assert PolicyMetadata.load(tmp_path).info.capabilities.execution_horizon == 3
    text = (tmp_path / METADATA).read_text()
    (tmp_path / METADATA).write_text(
        text.replace('"execution_horizon": 3', f'"execution_horizon": {SPEC.horizon + 1}')
    )
    with pytest.raises(CheckpointError, match=f"1 to {SPEC.horizon} rows, or none, got {SPEC.horizon + 1}"):
        PolicyMetadata.load(tmp_path)


def test_a_folder_without_weights_or_with_a_broken_description_says_so(trained, tmp_path):
    (tmp_path / METADATA).write_text("{}")
    with pytest.raises(CheckpointError, match="does not describe a LeRobot policy"):
        load_policy(tmp_path)
    (tmp_path / METADATA).write_text((trained[0] / METADATA).read_text())
    assert json.loads((tmp_path / METADATA).read_text())
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        load_policy(tmp_path)


def test_the_seed_alone_decides_the_weights_and_nobody_elses_draws_change(tmp_path):
    from policies.lerobot.train import LeRobotTrainConfig, train_lerobot

    samples = [Sample(o, towards(o)) for o in map(observation, range(8))]

    def weights(folder: Path) -> bytes:
        config = LeRobotTrainConfig(network="act", width=16, steps=2, batch_size=4)
        train_lerobot(samples, config, schema=SCHEMA, action_spec=SPEC, features=FEATURES, folder=folder)
        return (folder / "model.safetensors").read_bytes()

    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = weights(tmp_path / "first")
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(6)
    assert weights(tmp_path / "again") == first


def test_demonstrations_with_given_rows_are_left_out(tmp_path):
    from policies.lerobot.train import LeRobotTrainConfig, train_lerobot

    given = [replace(Sample(observation(0), towards(observation(0))), num_committed=3)]
    with pytest.raises(InvalidValueError, match="none of 1 demonstrations"):
        train_lerobot(
            given, LeRobotTrainConfig(network="act"), schema=SCHEMA, action_spec=SPEC, features=FEATURES,
            folder=tmp_path,
        )  # fmt: skip
