"""An interrupted training continues where it was, to the same weights."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from policies import resume
from policies.flow.checkpoint import load
from policies.flow.features import FeatureConfig
from policies.flow.recipes import Prefix
from policies.flow.train import TrainConfig, train
from policies.resume import Resumable, Training, state_path
from policies.vision.encoder import ImageEncoder
from robot_runtime.errors import InvalidValueError
from tests.policies.test_encoder import CONFIG, seen_from
from tests.policies.toy import SCHEMA, SPEC

SAMPLES = [seen_from(number) for number in range(40)]


class Interrupted(Exception): ...


def trained(folder: Path, *, stop_at: int | None = None, steps: int = 12, masked=()) -> Path:
    def on_step(step: int, loss: float) -> None:
        if step == stop_at:
            raise Interrupted

    return train(
        SAMPLES,
        TrainConfig(
            recipe=Prefix(max_delay=2), steps=steps, batch_size=16, warmup_steps=2, width=32, num_layers=1,
            num_heads=2, bfloat16=False, features=FeatureConfig(),
        ),
        schema=replace(SCHEMA, environment_state_dim=0, environment_state_names=()),
        action_spec=SPEC,
        folder=folder,
        encoder=ImageEncoder.new(replace(CONFIG, masked=masked), seed=0),
        on_step=on_step,
        resume=state_path(folder),
    )  # fmt: skip


def test_an_interrupted_training_ends_with_the_weights_of_one_that_was_not(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "EVERY_S", 0.0)
    whole = load(trained(tmp_path / "whole"))
    with pytest.raises(Interrupted):
        trained(tmp_path / "cut", stop_at=7)
    assert state_path(tmp_path / "cut").is_file()
    resumed = load(trained(tmp_path / "cut"))
    assert not state_path(tmp_path / "cut").exists()
    for one, two in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, two)
    seen = [ImageEncoder.load(tmp_path / name).see([SAMPLES[0].observation]) for name in ("whole", "cut")]
    assert (seen[0][0].environment_state == seen[1][0].environment_state).all()


def test_a_state_of_another_training_is_refused_and_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "EVERY_S", 0.0)
    with pytest.raises(Interrupted):
        trained(tmp_path / "cut", stop_at=3)
    with pytest.raises(InvalidValueError, match="other options or data"):
        trained(tmp_path / "cut", steps=13)
    assert state_path(tmp_path / "cut").is_file()


def test_a_training_with_other_masked_images_is_another_one(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "EVERY_S", 0.0)
    with pytest.raises(Interrupted):
        trained(tmp_path / "cut", stop_at=3)
    with pytest.raises(InvalidValueError, match="other options or data"):
        trained(tmp_path / "cut", masked=((0.5, 0.0, 1.0, 1.0),))


def of_nothing() -> Training:
    return Training(tensors=[torch.zeros(2)], optimisers=[], generator=torch.Generator())


def test_a_damaged_state_is_refused_with_its_name(tmp_path):
    path = tmp_path / "state"
    path.write_bytes(b"damaged")
    with pytest.raises(InvalidValueError, match="remove it to start anew"):
        Resumable(path, "settings").resume(of_nothing())


def test_a_state_is_kept_only_from_time_to_time(tmp_path):
    now = [0.0]
    kept, training = Resumable(tmp_path / "state", "settings", now_s=lambda: now[0]), of_nothing()
    for step, now_s in ((1, 0.0), (2, resume.EVERY_S)):
        training.step, now[0] = step, now_s
        kept.keep(training)
        later = of_nothing()
        kept.resume(later)
        assert later.step == (0 if now_s == 0.0 else 2)
    kept.finish()
    assert not (tmp_path / "state").exists()
