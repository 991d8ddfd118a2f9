"""A policy that learns from images alone: its encoder is trained and kept with it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from msgspec import structs

from policies.flow.demonstrations import StoredDemonstration
from policies.flow.features import FeatureConfig
from policies.flow.recipes import Prefix
from policies.flow.train import TrainConfig, train
from policies.load import load_policy
from policies.vision.encoder import EncoderConfig, ImageEncoder
from policies.vision.end_to_end import Augmentation, augmented
from robot_runtime.core.values.state import Image
from robot_runtime.errors import CheckpointError, InvalidValueError
from tests.policies.toy import SCHEMA, SPEC, infer, make_observation, rows_past, side_of

SIZE = (32, 32)
CONFIG = EncoderConfig(cameras=("front",), sizes=(SIZE,), num_latents=8, num_keypoints=8)


def seen_from(number: int) -> StoredDemonstration:
    """A bow to the side where the image has its dot; nothing else in the observation shows the side."""
    side, observation = (-1, 1)[number % 2], make_observation(number)
    pixels = np.zeros((*SIZE, 3), np.uint8)
    x = 16 + 9 * side
    pixels[14:18, x - 2 : x + 2] = 255
    seen = structs.replace(
        observation, images={"front": Image(t_ns=0, pixels=pixels)}, environment_state=np.zeros(0)
    )
    return StoredDemonstration(observation=seen, rows=rows_past(observation, side), num_committed=0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    samples = [seen_from(number) for number in range(400)]
    folder = tmp_path_factory.mktemp("seeing") / "eyes"
    losses: list[float] = []
    train(
        samples,
        TrainConfig(
            recipe=Prefix(max_delay=2), steps=250, batch_size=32, warmup_steps=10, ema_decay=0.95, width=32,
            num_layers=2, num_heads=2, bfloat16=False, features=FeatureConfig(),
        ),
        schema=replace(SCHEMA, environment_state_dim=0, environment_state_names=()),
        action_spec=SPEC,
        folder=folder,
        encoder=ImageEncoder.new(CONFIG, seed=0),
        on_step=lambda step, loss: losses.append(loss),
    )  # fmt: skip
    return folder, samples, losses


def test_its_loss_falls_and_it_is_loaded_as_any_policy_with_its_cameras(trained):
    folder, _, losses = trained
    assert losses[-1] < losses[0]
    policy = load_policy(folder)
    assert dict(policy.info.schema.cameras) == {"front": SIZE}
    assert policy.info.schema.environment_state_dim == 0
    for number in range(1000, 1010):
        demonstration = seen_from(number)
        rows = infer(policy, demonstration.observation)
        assert np.sign(side_of(rows, demonstration.observation)) == (-1, 1)[number % 2]


def test_a_missing_image_and_one_of_another_size_are_refused_by_name(trained):
    folder, samples, _ = trained
    encoder = ImageEncoder.load(folder)
    with pytest.raises(ValueError, match="front"):
        encoder.see([structs.replace(samples[0].observation, images={})])
    large = {"front": Image(t_ns=0, pixels=np.zeros((64, 64, 3), np.uint8))}
    with pytest.raises(ValueError, match="front images"):
        encoder.see([structs.replace(samples[0].observation, images=large)])


def test_what_is_masked_changes_no_latent():
    config = replace(CONFIG, masked=((0.5, 0.0, 1.0, 1.0),))
    encoder = ImageEncoder.new(config, seed=0)
    images = torch.randint(0, 256, (2, *SIZE, 3), generator=torch.Generator().manual_seed(0))
    other = images.clone()
    other[:, 16:] = 0
    assert torch.equal(encoder.network([images]), encoder.network([other]))
    with pytest.raises(InvalidValueError, match="top, left, bottom, right"):
        replace(CONFIG, masked=((0.5, 0.0, 0.2, 1.0),))


def test_an_augmentation_without_strength_changes_nothing_and_a_seed_decides():
    images = torch.randint(0, 256, (3, *SIZE, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    nothing = Augmentation(gain=0.0, offset=0.0, noise=0.0, shift=0.0)
    assert torch.equal(augmented(images, nothing, torch.Generator()), images.float())
    one, two = (augmented(images, Augmentation(), torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, images.float())


def test_a_damaged_encoder_is_refused(trained, tmp_path):
    (tmp_path / "encoder.json").write_text("{}")
    with pytest.raises(CheckpointError, match="encoder"):
        ImageEncoder.load(tmp_path)


def test_pretrained_weights_are_those_of_a_resnet_or_refused(tmp_path):
    from torchvision.models import resnet18

    whole = resnet18(weights=None).state_dict()
    torch.save(whole, tmp_path / "resnet.pt")
    config = replace(CONFIG, backbone="resnet18")
    encoder = ImageEncoder.new(config, seed=0, pretrained=tmp_path / "resnet.pt")
    first = encoder.network.state_dict()["eyes.0.layers.0.weight"]
    assert torch.equal(first, whole["conv1.weight"])
    torch.save({"other": torch.zeros(1)}, tmp_path / "other.pt")
    with pytest.raises(InvalidValueError, match="no ResNet-18"):
        ImageEncoder.new(config, seed=0, pretrained=tmp_path / "other.pt")
    with pytest.raises(InvalidValueError, match="backbone resnet18"):
        ImageEncoder.new(CONFIG, seed=0, pretrained=tmp_path / "resnet.pt")
