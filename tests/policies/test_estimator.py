"""Seeing the scene: a small estimator learns where a dot is, and a flow policy goes there by sight."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from policies.flow.checkpoint import load, write_card
from policies.flow.features import FeatureConfig, Normaliser
from policies.flow.policy import FlowPolicy
from policies.flow.recipes import Prefix
from policies.flow.train import TrainConfig, train
from policies.load import load_policy
from policies.vision.estimator import Estimator, GaussianEstimate, hand_numbers, scene_numbers
from policies.vision.finetune import estimated_schema, with_estimates
from policies.vision.network import EstimatorConfig, SceneEstimator, as_recorded
from policies.vision.train import EstimatorTrainConfig, nll, train_estimator
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ActionSpec, EndEffectorPose, GripperWidth
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import ArmState, Image, Observation, RobotState
from robot_runtime.errors import CheckpointError, InvalidValueError
from robot_runtime.evaluation.delay import answers
from tests.policies.toy import Sample

pytestmark = pytest.mark.long

SIZE = (24, 24)
FIELDS = (EndEffectorPose(), GripperWidth())
SPEC = ActionSpec(fields=FIELDS, horizon=4, dt_ns=50_000_000)
SCHEMA = Schema(
    action_fields=FIELDS, num_joints=2, has_gripper=True, has_base=False, environment_state_dim=3,
    cameras={"eye": SIZE, "palm": SIZE},
)  # fmt: skip
EYES, PALM = SCHEMA.cameras, {"palm": "arm"}


SHORT = EstimatorTrainConfig(steps=2, batch_size=8, warmup_steps=1)


def observation(seed: int) -> Observation:
    """A white dot on grey where the point is, seen from above and, three times larger, from the hand.

    Every fourth one is out of the picture.
    """
    rng = np.random.default_rng(seed)
    p = np.array([*rng.uniform(-0.2, 0.2, 2), 0.0])
    hand = pin.SE3(pin.rpy.rpyToMatrix(0.0, 0.0, rng.uniform(-1.0, 1.0)), rng.uniform(-0.1, 0.1, 3))
    state = RobotState(t_ns=1, q=np.zeros(2), dq=np.zeros(2), gripper_width=0.04, X_BE=hand)
    pictures = {
        "eye": picture(p[:2] * 50 if seed % 4 else None),
        "palm": picture(hand.actInv(p)[:2] * 150 if seed % 4 else None),
    }
    images = {name: Image(t_ns=1, pixels=pixels) for name, pixels in pictures.items()}
    return Observation(state=state, images=images, environment_state=p, task="go")


def picture(dot: np.ndarray | None) -> np.ndarray:
    """A dot so far from the middle [pixels]."""
    pixels = np.full((*SIZE, 3), 90, np.uint8)
    if dot is not None and np.abs(dot).max() < 10:
        row, column = np.round(12 + dot).astype(int)
        pixels[row - 1 : row + 2, column - 1 : column + 2] = 255
    return pixels


def towards(seen: Observation) -> np.ndarray:
    share = np.linspace(0.0, 1.0, SPEC.horizon)[:, None]
    here = seen.state.X_BE.translation
    constant = np.tile([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.03], (SPEC.horizon, 1))
    return np.column_stack([here + share * (seen.environment_state - here), constant])


SAMPLES = [Sample(o, towards(o)) for o in map(observation, range(800))]


@pytest.fixture(scope="module")
def trained() -> tuple[Estimator, dict[str, float]]:
    config = EstimatorTrainConfig(steps=250, batch_size=64, learning_rate=3e-3, warmup_steps=20, held_out=0.1)
    seen = [sample.observation for sample in SAMPLES]
    return train_estimator(seen, config, cameras=EYES, on_hand=PALM, points=(3,))


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("seeing") / "seeing"
    trained[0].save(out)
    train(
        with_estimates(SAMPLES, trained[0]),
        TrainConfig(
            recipe=Prefix(max_delay=2), steps=200, batch_size=64, warmup_steps=20, ema_decay=0.98, width=32,
            num_layers=2, num_heads=2, bfloat16=False, features=FeatureConfig(),
        ),
        schema=estimated_schema(SCHEMA, trained[0]),
        action_spec=SPEC,
        folder=out,
    )  # fmt: skip
    return out


@pytest.mark.long
def test_what_is_seen_is_known_and_what_is_not_is_known_to_be_unknown(trained):
    estimator, errors = trained
    assert 0.3 < errors["demonstrations_z"] < 3.0
    unseen = [observation(seed) for seed in range(2000, 2400)]
    estimates = estimator.estimate(unseen)
    assert estimates.shape == (400, 12)  # the point from the hand and from the base, and their deviations
    scene, deviation = estimates[:, 3:6], estimates[:, 9:12]
    truth = np.array([o.environment_state for o in unseen])
    hidden = np.array([seed % 4 == 0 for seed in range(2000, 2400)])
    error = np.abs(scene - truth)[:, :2]
    assert np.median(error[~hidden]) < 0.012
    assert np.median(error[hidden]) > 0.06
    assert np.median(deviation[hidden][:, :2]) > 4 * np.median(deviation[~hidden][:, :2])
    z = (scene - truth)[:, :2] / deviation[:, :2]
    assert 0.3 < np.sqrt(np.mean(z**2)) < 3.0


def test_what_only_the_hand_sees_is_known_too(trained):
    estimator, errors = trained
    assert errors["demonstrations_near_m"] < 0.02
    near = [o for o in map(observation, range(2001, 3000, 2)) if is_near(o)]
    truth = np.array([scene_numbers(o, (3,))[:2] for o in near])

    def error(seen: list[Observation]) -> float:
        return float(np.median(np.abs(estimator.estimate(seen)[:, :2] - truth)))

    blank = Image(t_ns=1, pixels=picture(None))
    by_hand = [structs.replace(o, images={**o.images, "eye": blank}) for o in near]
    assert error(near) < 0.01
    assert error(by_hand) < 0.03
    assert error([structs.replace(o, images={"eye": blank, "palm": blank}) for o in near]) > 2 * error(
        by_hand
    )


def is_near(o: Observation) -> bool:
    assert o.state.X_BE is not None
    return bool(np.abs(o.state.X_BE.actInv(o.environment_state)[:2]).max() < 0.06)


def test_where_the_robot_is_says_nothing_of_what_its_base_sees():
    seen = [observation(seed) for seed in range(2000, 2050)]
    by_eye, _ = train_estimator(seen, SHORT, cameras={"eye": SIZE}, points=(3,))
    elsewhere = pin.SE3(np.eye(3), np.ones(3))
    moved = [structs.replace(o, state=replace(o.state, X_BE=elsewhere, q=np.ones(2))) for o in seen]
    np.testing.assert_allclose(by_eye.estimate(moved)[:, 3:6], by_eye.estimate(seen)[:, 3:6], atol=1e-12)


@given(
    st.lists(
        st.tuples(st.floats(-2, 2), st.floats(1e-6, 10), st.floats(-2, 2), st.floats(1e-6, 10)), min_size=1
    )
)
def test_two_that_tell_the_same_number_are_weighed_by_how_sure_they_are(pairs):
    a, va, b, vb = np.array(pairs).T[:, None]
    one, other = GaussianEstimate(mean=a, variance=va), GaussianEstimate(mean=b, variance=vb)
    both = one.fused(other)
    assert (both.variance <= np.minimum(va, vb) * (1 + 1e-9)).all()
    assert (both.mean >= np.minimum(a, b) - 1e-9).all()
    assert (both.mean <= np.maximum(a, b) + 1e-9).all()
    np.testing.assert_allclose(both.mean, other.fused(one).mean, atol=1e-9)
    least = (both.mean - a) / va + (both.mean - b) / vb  # derivative of the summed squares
    np.testing.assert_allclose(least * both.variance, 0.0, atol=1e-6)


class Telling(SceneEstimator):
    """Tells what it is told to tell, of two points that look alike."""

    def __init__(self, **told: tuple[np.ndarray, float]) -> None:
        config = EstimatorConfig(
            cameras=tuple(told), on_hand=("palm",), size=SIZE, scene_dim=6, points=(3, 3), points_alike=True
        )
        super().__init__(config)
        self.told = [
            (torch.tensor(mean)[None], torch.full((1, len(mean)), np.log(std))) for mean, std in told.values()
        ]

    def forward(self, pictures: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return self.told


class TellingTwo(SceneEstimator):
    """Tells of one point what each of three cameras sees of it: one is fixed, two are on two hands."""

    def __init__(self, *told: tuple[np.ndarray, float]) -> None:
        config = EstimatorConfig(
            cameras=("eye", "left_palm", "right_palm"), on_hand=("left_palm", "right_palm"),
            carried_by=("left_arm", "right_arm"), hands=("left_arm", "right_arm"), size=SIZE, scene_dim=3,
            points=(3,),
        )  # fmt: skip
        super().__init__(config)
        self.told = [
            (torch.tensor(mean)[None], torch.full((1, len(mean)), np.log(std))) for mean, std in told
        ]

    def forward(self, pictures: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return self.told


@pytest.mark.parametrize("sure", ["left_arm", "right_arm"])
def test_of_two_hands_each_sees_the_point_from_where_it_is_and_is_told_where_the_point_is(sure: str):
    rng, hands = np.random.default_rng(3), ("left_arm", "right_arm")
    poses = {
        arm: pin.SE3(pin.exp3(rng.normal(size=3)), np.array([0.1 * (-1) ** i, 0.0, 0.3]))
        for i, arm in enumerate(hands)
    }
    parts = {arm: ArmState(q=np.zeros(2), dq=np.zeros(2), X_BE=X_BE) for arm, X_BE in poses.items()}
    pixels = np.zeros((*SIZE, 3), np.uint8)
    seen = Observation(
        state=RobotState(t_ns=1, parts=parts),
        images={name: Image(t_ns=1, pixels=pixels) for name in ("eye", "left_palm", "right_palm")},
        environment_state=np.array([0.02, 0.05, 0.2]),
    )
    config = TellingTwo(*[(np.zeros(3), 1.0)] * 3).config
    told = [(hand_numbers(seen, config, arm), 0.001 if arm == sure else 0.4) for arm in hands]
    network = TellingTwo((seen.environment_state + 0.05, 0.1), *told)
    estimator = Estimator(network=network, scene=Normaliser(mean=np.zeros(3), std=np.ones(3)))
    numbers, _ = np.split(estimator.estimate([seen])[0], 2)
    assert estimator.num_estimates == 2 * 9
    np.testing.assert_allclose(numbers, scene_numbers(seen, (3,), hands), atol=2e-3)


def test_a_camera_on_a_hand_that_there_is_not_is_refused():
    with pytest.raises(InvalidValueError, match="cameras palm are carried by tail; the hands are arm"):
        EstimatorConfig(cameras=("palm",), on_hand=("palm",), carried_by=("tail",), size=SIZE, scene_dim=3)


@given(st.integers(0, 1), st.floats(0.2, 0.5), st.lists(st.floats(-0.1, 0.1), min_size=3, max_size=3))
def test_of_two_alike_the_hand_tells_the_one_that_it_is_likeliest_to_see(which, apart, p_E):
    seen = observation(1)
    assert seen.state.X_BE is not None
    seen_by_hand = seen.state.X_BE.act(np.array(p_E))
    farther = seen.state.X_BE.act(np.array(p_E) + np.copysign(apart, p_E))
    scene = np.concatenate([seen_by_hand, farther] if which == 0 else [farther, seen_by_hand])
    truth = structs.replace(seen, environment_state=scene)
    off = 0.03 * np.array([1.0, -1.0, 1.0, 1.0, 1.0, -1.0])  # as the base's camera has it
    network = Telling(eye=(scene + off, 0.05), palm=(np.zeros(3), 0.001))
    network.told[1] = (torch.tensor(hand_numbers(truth, network.config))[None], network.told[1][1])
    estimator = Estimator(network=network, scene=Normaliser(mean=np.zeros(6), std=np.ones(6)))
    told = estimator.estimate([seen])[0, 6:12].reshape(2, 3)
    np.testing.assert_allclose(told[which], seen_by_hand, atol=1e-3)
    np.testing.assert_allclose(told[1 - which], (scene + off).reshape(2, 3)[1 - which], atol=1e-9)


@pytest.mark.parametrize("size", [(24, 24), (7, 10)])
def test_colour_is_seen_at_half_resolution_whether_it_was_recorded_so_or_not(size):
    raw = 255.0 * torch.rand(3, 3, *size, generator=torch.Generator().manual_seed(0))
    seen = as_recorded(raw)
    assert seen.shape == raw.shape
    torch.testing.assert_close(as_recorded(seen), seen, atol=1e-3, rtol=0.0)  # a recording is seen as it is
    brightness = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    torch.testing.assert_close((seen * brightness).sum(1), (raw * brightness).sum(1), atol=1e-3, rtol=0.0)
    red = torch.tensor([200.0, 30.0, 40.0])[None, :, None, None].expand(1, 3, *size)
    torch.testing.assert_close(as_recorded(red), red, atol=1e-3, rtol=0.0)
    assert not torch.allclose(seen, raw, atol=10.0)


def test_glimpses_have_half_of_every_batch_and_are_told_apart_in_the_errors():
    seen = [sample.observation for sample in SAMPLES[:60]]
    _, errors = train_estimator(
        seen[:40], SHORT, cameras=EYES, on_hand=PALM, points=(3,), random_views=seen[40:]
    )
    assert {"demonstrations_z", "glimpses_z"} <= set(errors)


def test_the_likelihood_is_least_where_the_deviation_is_the_error():
    error, log_std = torch.full((1,), 0.3), torch.linspace(-4.0, 2.0, 601)
    loss = torch.stack([nll(error, s[None], torch.zeros(1), beta=0.0) for s in log_std])
    assert float(log_std[loss.argmin()].exp()) == pytest.approx(0.3, rel=0.02)


@pytest.mark.long
def test_a_policy_goes_by_sight_to_where_the_dot_is(folder):
    policy = load_policy(folder)
    assert policy.info.schema.cameras == EYES
    assert policy.info.schema.environment_state_dim == 0
    goals, ends = [], []
    for seed in range(3001, 3080, 2):
        seen = structs.replace(observation(seed), environment_state=np.zeros(0))
        rows = np.concatenate(
            list(policy.infer(ChunkRequest(observation=seen, sampler=ConstantSchedule(), seed=seed)))
        )
        goals.append(observation(seed).environment_state[:2])
        ends.append(rows[-1, :2])
    assert np.corrcoef(np.ravel(goals), np.ravel(ends))[0, 1] > 0.8


def test_the_model_card_says_through_what_it_sees(folder):
    write_card(load(folder), folder)
    card = (folder / "README.md").read_text()
    assert "images of eye and palm (24 x 24 pixels), which an estimator reduces to 12 numbers" in card


def test_batches_change_nothing(folder):
    policy = load_policy(folder)
    requests = [ChunkRequest(observation=observation(i), seed=i) for i in range(5)]
    for request, answer in zip(requests, answers(policy, requests), strict=True):
        alone = list(
            policy.infer(
                ChunkRequest(observation=request.observation, sampler=ConstantSchedule(), seed=request.seed)
            )
        )
        np.testing.assert_allclose(answer.rows, np.concatenate(alone), atol=1e-4)
    assert answers(policy, []) == []


def test_a_picture_that_is_missing_or_of_another_size_is_refused_by_name(folder):
    policy = load_policy(folder)
    blind = structs.replace(observation(1), images={})
    with pytest.raises(ValueError, match="image of camera 'eye', the observation has none"):
        list(policy.infer(ChunkRequest(observation=blind, sampler=ConstantSchedule(), seed=0)))
    large = {**observation(1).images, "eye": Image(t_ns=1, pixels=np.zeros((48, 48, 3), np.uint8))}
    with pytest.raises(ValueError, match=r"images of \(24, 24\) pixels, 'eye' has \(48, 48\)"):
        list(
            policy.infer(
                ChunkRequest(
                    observation=structs.replace(observation(1), images=large),
                    sampler=ConstantSchedule(),
                    seed=0,
                )
            )
        )


def test_an_estimator_that_does_not_fit_or_is_damaged_says_so(folder, tmp_path):
    for name in ("config.json", "model.safetensors", "estimator.json", "estimator.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "estimator.safetensors").write_bytes(b"no")
    with pytest.raises(CheckpointError, match=r"estimator\.safetensors is damaged"):
        load_policy(tmp_path)


def test_an_estimator_of_another_scene_is_refused(folder, trained):
    other = SceneEstimator(replace(trained[0].network.config, scene_dim=5))
    with pytest.raises(CheckpointError, match="takes 12 scene numbers, its estimator gives 16"):
        FlowPolicy(load(folder), estimator=replace(trained[0], network=other))


def test_a_robot_may_know_more_of_the_scene_than_a_policy_that_sees_it(folder):
    from robot_runtime.core.values.mismatches import mismatches

    policy = load_policy(folder)
    assert mismatches(robot=SCHEMA, policy=policy.info.schema) == []
    assert mismatches(robot=replace(SCHEMA, cameras={}), policy=policy.info.schema)


def test_the_seed_alone_decides_the_weights_and_nobody_elses_draws_change():
    def weights(seed: int) -> torch.Tensor:
        config = replace(SHORT, seed=seed)
        seen = [sample.observation for sample in SAMPLES[:40]]
        estimator, _ = train_estimator(seen, config, cameras=EYES, on_hand=PALM, points=(3,))
        return torch.cat([p.flatten() for p in estimator.network.parameters()])

    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = weights(0)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(6)
    assert torch.equal(weights(0), first)
    assert not torch.equal(weights(1), first)


@pytest.mark.parametrize(
    ("cameras", "message"),
    [
        ({}, "of one size, got none"),
        ({"eye": SIZE, "other": (24, 32)}, "of one size, got eye 24 x 24, other 24 x 32"),
        ({"eye": SIZE, "other": SIZE}, "observation 0: the policy needs an image of camera 'other'"),
        ({"eye": (48, 48)}, r"observation 0: the policy needs images of \(48, 48\)"),
    ],
)
def test_pictures_it_cannot_learn_from_are_refused(cameras, message):
    with pytest.raises(InvalidValueError, match=message):
        train_estimator([s.observation for s in SAMPLES[:8]], SHORT, cameras=cameras, points=(3,))


def test_an_estimator_learns_on_from_one_that_stays_as_it_is(trained):
    start, seen = trained[0], [sample.observation for sample in SAMPLES]
    before = {name: value.clone() for name, value in start.network.state_dict().items()}
    again, _ = train_estimator(seen[:400], SHORT, cameras=EYES, on_hand=PALM, points=(3,), init=start)
    assert all(torch.equal(value, before[name]) for name, value in start.network.state_dict().items())
    assert np.array_equal(again.scene.mean, start.scene.mean)  # of 800 others, which its numbers are told in
    far = [
        float((p - q).abs().max())
        for p, q in zip(again.network.parameters(), start.network.parameters(), strict=True)
    ]
    assert 0.0 < max(far) < 0.01  # after two steps
    with pytest.raises(InvalidValueError, match=r"start from has .*points=\(3,\).* need .*points=\(\)"):
        train_estimator(seen[:8], SHORT, cameras={"eye": SIZE}, points=(), init=start)


def test_a_camera_on_the_hand_needs_a_point_to_see():
    with pytest.raises(InvalidValueError, match="camera 'palm' is on a hand and needs points in space"):
        train_estimator([SAMPLES[0].observation], SHORT, cameras=EYES, on_hand=PALM, points=(2,))
