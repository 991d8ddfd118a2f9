"""Any policy of LeRobot's is described from its own files and served: real classes, small, random weights."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import torch
from msgspec import structs

from policies.files import METADATA
from policies.lerobot.random import NARROW, save_clip, save_smolvlm
from policies.load import load_policy, local_folder
from robot_runtime.core.history import ObservationHistory
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.dataset.recording import Recording
from robot_runtime.errors import CheckpointError, InvalidValueError
from robot_runtime.evaluation.delay import answers
from tests.policies.tiny_vla import TASK

pytest.importorskip("lerobot", reason="whose policies they are")
pytest.importorskip("diffusers", reason="the Diffusion Policy needs it")

DEGREE, STROKE = math.pi / 180, 0.08
BACKBONE = {"pretrained_backbone_weights": None}
DIFFUSION = {
    "n_obs_steps": 2, "down_dims": (32, 64), "num_train_timesteps": 10, "num_inference_steps": 2,
    "horizon": 8, "n_action_steps": 6,
}  # fmt: skip
CONFIGS = {
    "act": BACKBONE | {
        "dim_model": 32, "n_heads": 2, "dim_feedforward": 32, "n_encoder_layers": 1,
        "chunk_size": 6, "n_action_steps": 6,
    },
    "diffusion": BACKBONE | DIFFUSION,
    "diffusion-scene": BACKBONE | DIFFUSION,
    "vqbet": BACKBONE | {
        "n_obs_steps": 5, "gpt_n_layer": 1, "gpt_n_head": 2, "gpt_hidden_dim": 32, "gpt_output_dim": 32,
        "action_chunk_size": 6,
    },
    "multi_task_dit": {
        "n_obs_steps": 2, "horizon": 8, "n_action_steps": 6, "num_train_timesteps": 10,
        "num_inference_steps": 2, "hidden_dim": 32, "num_layers": 1, "num_heads": 2, "timestep_embed_dim": 32,
        "tokenizer_max_length": 8, "image_resize_shape": (32, 32), "image_crop_shape": None,
    },
    "tdmpc": {
        "latent_dim": 8, "mlp_dim": 16, "q_ensemble_size": 2, "use_mpc": True, "n_action_repeats": 1,
        "horizon": 6, "n_action_steps": 6,
    },
    "xvla": {
        "hidden_size": 32, "depth": 1, "num_heads": 2, "num_domains": 2, "len_soft_prompts": 2,
        "max_len_seq": 256, "num_denoising_steps": 2, "action_mode": "auto", "max_action_dim": 4,
        "tokenizer_max_length": 8, "chunk_size": 6, "n_action_steps": 6,
    },
}  # fmt: skip


BLIND = ("tdmpc", "diffusion-scene")  # the first knows one picture, of another name


def florence() -> dict:
    """A Florence-2 of two narrow stages."""
    narrow = {"depths": [1, 1], "embed_dim": [16, 32], "num_heads": [2, 2], "num_groups": [2, 2]}
    vision = narrow | {
        "patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1], "patch_prenorm": [False, True],
        "window_size": 4, "projection_dim": 32,
    }  # fmt: skip
    text = {
        "d_model": 32, "vocab_size": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    }  # fmt: skip
    return {"vision_config": vision, "text_config": text}


def save(
    kind: str,
    folder: Path,
    *,
    state_dim: int = 3,
    action_dim: int = 3,
    pictures: tuple[str, ...] = ("observation.images.wrist",),
) -> Path:
    """As LeRobot saves a policy of three numbers, or more, and a camera, or a scene of two."""
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors

    is_blind = kind in BLIND and pictures == ("observation.images.wrist",)
    more, kind = dict(CONFIGS[kind]), kind.partition("-")[0]
    if kind == "xvla":
        words = save_smolvlm(folder / "words", NARROW)
        more |= {"florence_config": florence(), "tokenizer_name": str(words)}
    if kind == "multi_task_dit":
        clip = str(save_clip(folder / "clip"))
        more |= {"vision_encoder_name": clip, "text_encoder_name": clip}
    config = make_policy_config(
        kind,
        **more,
        device="cpu",
        input_features={"observation.state": PolicyFeature(FeatureType.STATE, (state_dim,))}
        | (
            {"observation.environment_state": PolicyFeature(FeatureType.ENV, (2,))}
            if is_blind
            else {name: PolicyFeature(FeatureType.VISUAL, (3, 96, 96)) for name in pictures}
        ),
        output_features={"action": PolicyFeature(FeatureType.ACTION, (action_dim,))},
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = get_policy_class(kind)(config)
        if kind == "multi_task_dit":  # what is seen starts at zero, and would do nothing
            for block in policy.noise_predictor.transformer_blocks:
                torch.nn.init.normal_(block.adaLN_modulation[-1].weight, std=0.5)
    ends = {"min": torch.tensor([-90.0, -90.0, 0.0]), "max": torch.tensor([90.0, 90.0, 1.0])}
    stats = ends | {"mean": torch.zeros(3), "std": torch.tensor([50.0, 50.0, 0.5])}
    state, action = (
        stats if dim == 3 else {"mean": torch.zeros(dim), "std": torch.ones(dim)}
        for dim in (state_dim, action_dim)
    )
    processors = make_pre_post_processors(
        config, dataset_stats={"observation.state": state, "action": action}
    )
    for part in (policy, *processors):
        part.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=CONFIGS)
def folder(request, tmp_path_factory) -> Path:
    folder = save(request.param, tmp_path_factory.mktemp(request.param))
    described(folder, tasks=(TASK,), joint_unit_rad=DEGREE, stroke_m=STROKE)
    return folder


def described(folder: Path, **changes):
    """Two joints and a gripper at 20 Hz, or otherwise."""
    from policies.lerobot.describe import Declared, describe

    return describe(folder, Declared(**({"num_joints": 2, "has_gripper": True, "fps": 20.0} | changes)))


def observation(policy, seed: int) -> Observation:
    rng = np.random.default_rng(seed)
    q, width = rng.uniform(-1.0, 1.0, 2), rng.uniform(0.0, STROKE)
    pixels = rng.integers(0, 255, (96, 96, 3), np.uint8)
    return Observation(
        state=RobotState(t_ns=1, q=q, dq=np.zeros(2), gripper_width=width),
        images={name: Image(t_ns=1, pixels=pixels) for name in policy.info.schema.cameras},
        environment_state=rng.uniform(-1.0, 1.0, policy.info.schema.environment_state_dim),
        task=TASK,
    )


@pytest.mark.long
def test_what_it_needs_and_gives_is_read_from_its_own_files(folder: Path):
    policy = load_policy(folder)
    assert policy.info.action_spec.fields == (JointPosition(2), GripperWidth())
    assert policy.info.action_spec.horizon == 6
    assert policy.info.action_spec.dt_ns == 50_000_000
    seen = (policy.info.schema.cameras, policy.info.schema.environment_state_dim)
    assert seen == (({}, 2) if folder.name.startswith(BLIND) else ({"wrist": (96, 96)}, 0))


@pytest.mark.long
def test_rows_are_what_lerobots_own_loop_executes_from_the_start(folder: Path):
    check_rows(folder, ("observation.images.wrist",))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "pictures"),
    [
        ("act", ("observation.image",)),
        ("act", ("observation.image2", "observation.images.wrist", "observation.image")),
        ("diffusion", ("observation.image",)),
        ("tdmpc", ("observation.image",)),
        ("vqbet", ("observation.image",)),
    ],
)
def test_a_picture_has_whatever_name_lerobots_policies_give_it(kind: str, pictures, tmp_path: Path):
    folder = save(kind, tmp_path / kind, pictures=pictures)
    described(folder, tasks=(TASK,), joint_unit_rad=DEGREE, stroke_m=STROKE)
    cameras = load_policy(folder).info.schema.cameras
    assert cameras == {name.rpartition(".")[2]: (96, 96) for name in pictures}
    check_rows(folder, pictures)


def test_two_pictures_of_one_camera_are_refused(tmp_path: Path):
    save("act", tmp_path, pictures=("observation.image", "observation.images.image"))
    with pytest.raises(CheckpointError, match="two of its images would be of one camera, 'image'"):
        described(tmp_path)


def check_rows(folder: Path, pictures: tuple[str, ...]) -> None:
    """Rows are what LeRobot's own loop executes from the start."""
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    policy = load_policy(folder)
    seen = observation(policy, 3)
    (rows,) = policy.infer(ChunkRequest(observation=seen, sampler=ConstantSchedule(), seed=5))
    theirs = get_policy_class(policy.info.name.split()[0]).from_pretrained(folder).eval()
    before, after = make_pre_post_processors(theirs.config, pretrained_path=str(folder))
    batch = as_theirs(seen, pictures)
    torch.manual_seed(5)
    theirs.reset()
    executed = [after(theirs.select_action(before(dict(batch)))).numpy()[0] for _ in range(6)]
    expected = np.array(executed) * [DEGREE, DEGREE, STROKE]
    np.testing.assert_allclose(rows, expected, atol=1e-5)


FOLLOWED = 4


@pytest.mark.long
@pytest.mark.parametrize("kind", ["diffusion", "diffusion-scene", "multi_task_dit", "vqbet"])
def test_rows_are_lerobots_own_loops_for_a_whole_episode(kind: str, tmp_path: Path):
    """Its loop sees every step; ours keeps frames and asks every six steps."""
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    folder = save(kind, tmp_path / kind)
    described(folder, tasks=(TASK,), joint_unit_rad=DEGREE, stroke_m=STROKE)
    policy = load_policy(folder)
    spec, history = policy.info.action_spec, ObservationHistory.of(policy.info)
    assert history is not None
    theirs = get_policy_class(kind.partition("-")[0]).from_pretrained(folder).eval()
    before, after = make_pre_post_processors(theirs.config, pretrained_path=str(folder))
    theirs.reset()
    assert policy.info.n_obs_steps == theirs.config.n_obs_steps > 1
    for step in range(FOLLOWED * spec.horizon):
        seen = structs.replace(observation(policy, step), history=())
        seen = structs.replace(seen, state=replace(seen.state, t_ns=step * spec.dt_ns))
        row = step % spec.horizon
        if row == 0:
            (rows,) = policy.infer(ChunkRequest(observation=history.asked(seen), seed=step))
            torch.manual_seed(step)
        else:
            history.note(seen)
        executed = after(theirs.select_action(before(as_theirs(seen)))).numpy()[0]
        np.testing.assert_allclose(rows[row], executed * [DEGREE, DEGREE, STROKE], atol=1e-5)


def as_theirs(seen: Observation, pictures: tuple[str, ...] = ("observation.images.wrist",)) -> dict:
    """An observation in LeRobot's names and units."""
    names = {name.rpartition(".")[2]: name for name in pictures}
    state = np.append(seen.state.q / DEGREE, seen.state.gripper_width / STROKE)
    batch = {"observation.state": torch.tensor(state, dtype=torch.float32)[None], "task": [TASK]}
    for name, image in seen.images.items():
        pixels = torch.from_numpy(image.pixels).permute(2, 0, 1).float() / 255.0
        batch[names[name]] = pixels[None]
    if len(seen.environment_state):
        batch["observation.environment_state"] = torch.tensor(seen.environment_state)[None].float()
    return batch


@pytest.mark.long
@pytest.mark.parametrize("scheduler", ["DDPM", "DDIM"])
def test_a_seed_becomes_the_noise_that_lerobot_draws_from_a_generator_of_it(
    scheduler: str, tmp_path: Path, monkeypatch
):
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    monkeypatch.setitem(
        CONFIGS, "diffusion", CONFIGS["diffusion"] | {"n_obs_steps": 1, "noise_scheduler_type": scheduler}
    )
    folder = save("diffusion", tmp_path / "diffusion")
    described(folder, joint_unit_rad=DEGREE, stroke_m=STROKE)
    policy = load_policy(folder)
    theirs = get_policy_class("diffusion").from_pretrained(folder).eval()
    before, after = make_pre_post_processors(theirs.config, pretrained_path=str(folder))
    requests = [ChunkRequest(observation=observation(policy, i), seed=10 + i) for i in range(3)]
    torch.manual_seed(1)  # nothing else counts
    for request, answer in zip(requests, answers(policy, requests), strict=True):
        batch = before(as_theirs(request.observation))
        stacked = {key: x[:, None] for key, x in batch.items() if key.startswith("observation.state")}
        stacked["observation.images"] = batch["observation.images.wrist"][:, None, None]
        network = theirs.diffusion
        with torch.no_grad():
            rows = network.conditional_sample(
                1,
                global_cond=network._prepare_global_conditioning(stacked),
                generator=torch.Generator().manual_seed(request.seed),
            )
        expected = after(rows[:, :6])[0].numpy() * [DEGREE, DEGREE, STROKE]
        np.testing.assert_allclose(answer.rows, expected, atol=1e-5)


@pytest.mark.long
def test_batches_change_nothing_and_seeds_decide(folder: Path):
    policy = load_policy(folder)
    requests = [ChunkRequest(observation=observation(policy, i), seed=i) for i in range(3)]
    together = answers(policy, requests)
    torch.manual_seed(9)
    for request, answer in zip(requests, together, strict=True):
        (rows,) = policy.infer(
            ChunkRequest(observation=request.observation, sampler=ConstantSchedule(), seed=request.seed)
        )
        np.testing.assert_allclose(answer.rows, rows, atol=1e-5)


def test_a_checkpoint_that_was_not_described_says_how_to(folder: Path, tmp_path: Path):
    for file in folder.iterdir():
        if file.is_file() and file.name != METADATA:
            (tmp_path / file.name).symlink_to(file)
    with pytest.raises(CheckpointError, match="robot-runtime describe"):
        load_policy(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_joints": 7}, "its state has 3 numbers; 7 joints and a gripper make 8, or 15 with velocities"),
        ({"has_gripper": False}, "its state has 3 numbers; 2 joints and no gripper make 2"),
        ({"fps": None}, "add --joints and --fps, or --dataset"),
    ],
)
def test_a_robot_that_does_not_fit_is_refused_in_numbers(tmp_path: Path, changes: dict, words: str):
    save("act", tmp_path)
    with pytest.raises((CheckpointError, InvalidValueError), match=words):
        described(tmp_path, **changes)
    with pytest.raises(CheckpointError, match="there is no folder"):
        described(tmp_path / "nothing")


def test_what_a_type_cannot_do_is_refused_by_name(tmp_path: Path):
    described(save("act", tmp_path))
    with pytest.raises(InvalidValueError, match="this is act; smolvla, pi0, pi05 can be compiled"):
        load_policy(tmp_path, is_compiled=True)
    with pytest.raises(InvalidValueError, match="whose dtype is its own"):
        load_policy(tmp_path, dtype="bfloat16")
    with pytest.raises(InvalidValueError, match="one_graph applies to a compiled policy only"):
        load_policy(tmp_path, is_whole=True)
    with pytest.raises(InvalidValueError, match="track is not one"):
        load_policy("track", is_compiled=True)


def recording(folder: Path, action_names: list[str]) -> Path:
    """What a dataset of ours says of itself."""
    schema = Schema(
        action_fields=(JointPosition(2), GripperWidth()), num_joints=2, has_gripper=True, has_base=False,
        cameras={"wrist": (96, 96)},
    )  # fmt: skip
    features = Recording(schema=schema).features(action_names)
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps({"fps": 20, "features": features}))
    return folder


ACTION_NAMES = ["arm.joint_1", "arm.joint_2", "gripper.width"]


def test_a_policy_trained_on_a_recording_is_shown_the_state_in_the_order_of_its_names(tmp_path: Path):
    checkpoint, dataset = tmp_path / "act", recording(tmp_path / "dataset", ACTION_NAMES)
    save("act", checkpoint, state_dim=14)
    noted = {"dataset": {"root": str(dataset)}}
    (checkpoint / "train_config.json").write_text(json.dumps(noted))
    metadata = described(checkpoint, num_joints=None, has_gripper=False, fps=None)
    assert metadata.info.action_spec.fields == (JointPosition(2), GripperWidth())
    state = RobotState(
        t_ns=1, q=np.array([1.0, 2.0]), dq=np.array([3.0, 4.0]), gripper_width=0.05,
        X_BE=pin.SE3(np.eye(3), np.array([6.0, 7.0, 8.0])),
    )  # fmt: skip
    pixels = np.zeros((96, 96, 3), np.uint8)
    seen = Observation(state=state, images={"wrist": Image(t_ns=1, pixels=pixels)})
    (row,) = metadata.seen([seen])["observation.state"].tolist()
    assert row == pytest.approx([1, 2, 3, 4, 6, 7, 8, 1, 0, 0, 0, 1, 0, 0.05])
    (rows,) = load_policy(checkpoint).infer(
        ChunkRequest(observation=seen, sampler=ConstantSchedule(), seed=0)
    )
    assert rows.shape == (6, 3)
    with pytest.raises(ValueError, match="NaN or infinite"):
        metadata.seen([structs.replace(seen, state=replace(state, q=np.array([np.nan, 0.0])))])
    with pytest.raises(ValueError, match=r"the policy needs arm\.x, arm\.y"):
        metadata.seen([structs.replace(seen, state=replace(state, X_BE=None))])


def test_a_dataset_whose_numbers_have_other_names_is_refused(tmp_path: Path):
    save("act", tmp_path / "act")
    dataset = recording(tmp_path / "dataset", ["shoulder pan", "elbow", "gripper"])
    with pytest.raises(InvalidValueError, match="has undeclared numbers shoulder pan, elbow, gripper"):
        described(tmp_path / "act", num_joints=None, has_gripper=False, fps=None, dataset=dataset)
    with pytest.raises(CheckpointError, match="its state has 3 numbers; this robot's have 14"):
        described(tmp_path / "act", dataset=recording(tmp_path / "other", ACTION_NAMES))


def test_a_policy_of_the_hub_is_found_where_it_was_downloaded(tmp_path: Path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--somebody--act"
    save("act", repository / "snapshots" / "0123456789012345678901234567890123456789")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123456789012345678901234567890123456789")
    folder = local_folder("hf://somebody/act")
    described(folder)
    assert load_policy("hf://somebody/act").info.action_spec.horizon == 6
    with pytest.raises(CheckpointError, match="hf://nobody/act cannot be downloaded from the hub"):
        load_policy("hf://nobody/act")


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(InvalidValueError, match="device 'abacus' cannot be used here"):
        load_policy("track", device="abacus")
