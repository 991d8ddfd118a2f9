"""LeRobot's real flow networks, small and random, under our samplers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import structs

from policies.files import METADATA
from policies.lerobot.metadata import PolicyMetadata
from policies.lerobot.random import narrow_pi
from policies.load import load_policy
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    RtcGuidance,
    SamplerPart,
)
from robot_runtime.core.method.schedule import finish_steps
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.errors import CheckpointError, InvalidValueError
from robot_runtime.evaluation.delay import answers
from tests.policies import tiny_vla
from tests.policies.tiny_vla import DIM, HORIZON, PADDED, TASK, save_pi, save_smolvla

pytest.importorskip("lerobot", reason="serves LeRobot's policies")
pytest.importorskip("transformers", reason="SmolVLA and pi need it")
TRAINED = (ClampedPrefix, HorizonAwareSchedule)


@pytest.fixture(scope="module", params=["smolvla", "pi0", "pi05"])
def policy(request, tmp_path_factory):
    kind, folder = request.param, tmp_path_factory.mktemp(request.param)
    if kind == "smolvla":
        return load_policy(save_smolvla(folder, trained_for=TRAINED))
    with narrow_pi(kind, folder / "vlm"):
        return load_policy(save_pi(kind, folder, trained_for=TRAINED))


@pytest.fixture(scope="module")
def smolvla(tmp_path_factory):
    return load_policy(save_smolvla(tmp_path_factory.mktemp("smolvla"), trained_for=TRAINED))


def observation(seed: int) -> Observation:
    rng = np.random.default_rng(seed)
    state = RobotState(t_ns=0, q=rng.normal(size=2), dq=np.zeros(2), gripper_width=0.05)
    images = {"wrist": Image(t_ns=0, pixels=rng.integers(0, 256, (32, 32, 3), np.uint8))}
    return Observation(state=state, images=images, task=TASK)


def request(seed: int, *, n: int = 0, d: int = 0) -> ChunkRequest:
    rows = np.random.default_rng(100 + seed).normal(size=(n, DIM)) if n else None
    return ChunkRequest(observation=observation(seed), prev_action_chunk=rows, inference_delay=d, seed=seed)


def rows_of(policy, part: SamplerPart, *requests: ChunkRequest) -> list[np.ndarray]:
    return [answer.rows for answer in answers(policy, [structs.replace(r, sampler=part) for r in requests])]


def lerobots_own(policy, requests: list[ChunkRequest]) -> np.ndarray:
    """What LeRobot itself answers to the same observations from the same noise."""
    noise = torch.stack(
        [torch.randn((HORIZON, PADDED), generator=torch.Generator().manual_seed(r.seed)) for r in requests]
    )
    network = policy._sampler._network
    batch = policy._seen([r.observation for r in requests])
    return network._after(network._policy.predict_action_chunk(batch, noise=noise)).numpy()


def test_the_constant_schedule_gives_what_lerobot_gives(policy):
    requests = [request(seed) for seed in range(3)]
    ours = np.array(rows_of(policy, ConstantSchedule(), *requests))
    np.testing.assert_allclose(ours, lerobots_own(policy, requests), atol=1e-5)


def test_relative_actions_of_pi_count_from_the_numbers_of_their_names(tmp_path: Path):
    names = ["joint_0", "joint_1", "gripper_width"]
    options = {"use_relative_actions": True, "action_feature_names": names}
    with narrow_pi("pi0", tmp_path / "vlm"):
        folder = save_pi("pi0", tmp_path, trained_for=TRAINED, **options)
        metadata = replace(PolicyMetadata.load(folder), features=None, state_names=tuple(names))
        metadata.save(folder)
        policy = load_policy(folder)
        config = policy._sampler._network._policy.config
        before, after = make_steps(config, folder)
        seen = observation(3)
        (ours,) = rows_of(policy, ConstantSchedule(), ChunkRequest(observation=seen, seed=7))
        batch = before(metadata.seen([seen]))
        noise = torch.randn((1, HORIZON, PADDED), generator=torch.Generator().manual_seed(7))
        theirs = after(policy._sampler._network._policy.predict_action_chunk(batch, noise=noise))
        np.testing.assert_allclose(ours, theirs[0].numpy(), atol=1e-5)
        rows = ours + 0.01
        asked = ChunkRequest(observation=seen, prev_action_chunk=rows, inference_delay=3, seed=7)
        (continued,) = rows_of(policy, ClampedPrefix(), asked)
        assert np.array_equal(continued[:3], rows[:3])
        replace(metadata, state_names=("joint_1", "joint_0", "gripper_width")).save(folder)
        with pytest.raises(
            CheckpointError, match=r"action 'arm\.joint_1' would be relative to 'arm\.joint_2'"
        ):
            load_policy(folder)


def make_steps(config, folder: Path):
    """LeRobot's own pre- and postprocessor."""
    from lerobot.policies.factory import make_pre_post_processors

    return make_pre_post_processors(config, pretrained_path=str(folder))


@pytest.mark.long
@pytest.mark.parametrize(
    "part",
    [
        ConstantSchedule(),
        ClampedPrefix(),
        HorizonAwareSchedule(num_steps=4),
        RtcGuidance(),
        RtcGuidance(exact_jacobian=False),
        BestOfSamples(num_samples=3),
        AveragedSamples(num_samples=2),
    ],
)
def test_batches_change_nothing_and_committed_rows_stay_to_the_last_bit(policy, part: SamplerPart):
    is_prefixless = isinstance(part, ConstantSchedule | AveragedSamples)
    requests = [request(0), request(1) if is_prefixless else request(1, n=6, d=3), request(2)]
    together = rows_of(policy, part, *requests)
    for one, rows in zip(requests, together, strict=True):
        np.testing.assert_allclose(rows_of(policy, part, one)[0], rows, atol=1e-4)
    if isinstance(part, ClampedPrefix | HorizonAwareSchedule):
        assert np.array_equal(together[1][:3], requests[1].prev_action_chunk[:3])


def test_what_is_seen_is_encoded_once_for_a_chunk_and_all_its_samples(policy, monkeypatch):
    model, count = policy._sampler._network._policy.model, 0
    embed = model.embed_prefix

    def counted(*arguments, **named):
        nonlocal count
        count += 1
        return embed(*arguments, **named)

    monkeypatch.setattr(model, "embed_prefix", counted)
    for part in (ConstantSchedule(), AveragedSamples(num_samples=4), HorizonAwareSchedule(num_steps=5)):
        count = 0
        rows_of(policy, part, request(0))
        assert count == 1


def test_first_rows_come_before_the_far_ones_are_finished(policy):
    part = HorizonAwareSchedule(num_steps=5)
    before = policy.num_evaluations
    blocks = policy.infer(structs.replace(request(0, n=4, d=2), sampler=part))
    assert len(next(blocks)) == 3
    assert policy.num_evaluations - before == 1
    (answer,) = answers(policy, [structs.replace(request(0, n=4, d=2), sampler=part)])
    calls = np.repeat(answer.num_calls, [len(block) for block in answer.blocks])
    expected = np.maximum(finish_steps(part, horizon=HORIZON, inference_delay=2), 1)
    assert calls.tolist() == expected.tolist()


def test_a_flow_time_for_each_row_equals_one_for_all_if_they_are_the_same(policy):
    network = policy._sampler._network
    context = network.encode(policy._seen([observation(0), observation(1)]))
    x = torch.randn((2, HORIZON, PADDED), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for t in (1.0, 0.7, 0.1):
            whole = context.denoise(x, torch.full((2,), t))
            by_row = context.denoise(x, torch.full((2, HORIZON), t))
            torch.testing.assert_close(by_row, whole, atol=1e-5, rtol=1e-5)


def test_a_later_row_s_flow_time_changes_no_earlier_row_of_smolvla_and_all_of_pi(policy):
    """SmolVLA's rows see those before them, pi's see each other."""
    network = policy._sampler._network
    context = network.encode(policy._seen([observation(0)]))
    x = torch.randn((1, HORIZON, PADDED), generator=torch.Generator().manual_seed(0))
    t = torch.full((1, HORIZON), 0.5)
    changed = t.clone()
    changed[:, 5:] = 0.9
    with torch.no_grad():
        before, after = context.denoise(x, t), context.denoise(x, changed)
    assert torch.allclose(before[:, :5], after[:, :5], atol=1e-6) == ("smolvla" in policy.info.name)
    assert not torch.allclose(before[:, 5:], after[:, 5:], atol=1e-4)


def test_the_exact_guidance_differentiates_through_their_network(policy):
    exact, identity = (
        rows_of(policy, RtcGuidance(exact_jacobian=exact), request(0, n=6, d=2))[0] for exact in (True, False)
    )
    assert np.isfinite(exact).all()
    assert not np.allclose(exact, identity, atol=1e-4)


def test_a_checkpoint_that_says_nothing_of_its_training_takes_what_needs_none(tmp_path: Path):
    policy = load_policy(save_smolvla(tmp_path))
    assert policy.info.capabilities.samplers == (
        ConstantSchedule,
        AveragedSamples,
        BestOfSamples,
        RtcGuidance,
    )
    with pytest.raises(InvalidValueError, match="does not take the sampler ClampedPrefix"):
        policy.infer(structs.replace(request(0, n=4, d=2), sampler=ClampedPrefix()))


def test_a_column_that_was_always_the_same_in_training_is_run_and_can_be_committed_to(
    tmp_path: Path, monkeypatch
):
    """A gripper that no demonstration moved: its deviation is 0."""
    stats = tiny_vla._stats()
    stats["action"]["std"][2] = 0.0
    monkeypatch.setattr(tiny_vla, "_stats", lambda: stats)
    policy = load_policy(save_smolvla(tmp_path, trained_for=TRAINED))
    (rows,) = rows_of(policy, ConstantSchedule(), request(0))
    np.testing.assert_allclose(rows[:, 2], 0.04, atol=1e-6)
    (rows,) = rows_of(policy, ClampedPrefix(), request(0, n=HORIZON, d=2))
    assert np.isfinite(rows).all()
    assert policy.info.capabilities.row_statistics.std[0, 2] == 1.0


def test_a_sampler_part_that_does_not_exist_and_weights_that_are_not_there_say_so(tmp_path: Path):
    folder = save_smolvla(tmp_path, trained_for=(ClampedPrefix,))
    path = folder / METADATA
    path.write_text(path.read_text().replace("ClampedPrefix", "Sorcery"))
    with pytest.raises(CheckpointError, match="Invalid enum value 'Sorcery'"):
        load_policy(folder)
    folder = save_smolvla(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors"):
        load_policy(folder)


@pytest.mark.parametrize(
    "part",
    [
        ConstantSchedule(num_steps=4),
        ClampedPrefix(num_steps=4),
        HorizonAwareSchedule(num_steps=6),
        HorizonAwareSchedule(num_steps=6, early_stop_rows=2),
        RtcGuidance(num_steps=4, exact_jacobian=False),
    ],
)
def test_rows_that_look_back_only_are_the_same_when_finished_ones_are_not_computed_again(
    smolvla, part: SamplerPart, monkeypatch
):
    """Nor those that nobody wants."""
    network, computed = smolvla._sampler._network, []
    is_prefixless = isinstance(part, ConstantSchedule)
    requests = [request(0), request(1)] if is_prefixless else [request(0, n=6, d=2), request(1, n=6, d=3)]
    encode = network.encode

    def watched(seen):
        context = encode(seen)
        computed.append(context.causal)
        return context

    monkeypatch.setattr(network, "encode", watched)
    kept = rows_of(smolvla, part, *requests)
    monkeypatch.setattr(network, "looks_back_only", False)
    for rows, expected in zip(kept, rows_of(smolvla, part, *requests), strict=True):
        np.testing.assert_allclose(rows, expected, atol=1e-5)
    causal, nothing = computed
    assert nothing is None
    everything = part.num_steps * HORIZON
    if isinstance(part, ClampedPrefix | HorizonAwareSchedule):
        assert causal.num_computed < everything
    else:
        assert causal.num_computed == everything
