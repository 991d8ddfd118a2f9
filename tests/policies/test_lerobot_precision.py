"""LeRobot's flows in bfloat16: what has which format, how far rows then are, and what is refused."""

import logging
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from policies.cuda_graphs import float32_products, one_chunk
from policies.lerobot import precision
from policies.lerobot.random import narrow_pi
from policies.load import load_policy
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    RtcGuidance,
)
from robot_runtime.errors import CheckpointError, InvalidValueError
from tests.policies.test_lerobot_flow import TRAINED, request, rows_of
from tests.policies.tiny_vla import save_pi, save_smolvla

pytest.importorskip("lerobot", reason="serves LeRobot's policies")
pytest.importorskip("transformers", reason="SmolVLA and pi need it")
KINDS = ("smolvla", "pi0", "pi05")
BOUND = 0.03
"""Of the row error of these small random networks in bfloat16, whose numbers have 8 bits."""


class Checkpoint:
    """One of LeRobot's with random weights, to be loaded in several ways."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        with self.narrow():
            if kind == "smolvla":
                save_smolvla(folder, trained_for=TRAINED)
            else:
                save_pi(kind, folder, trained_for=TRAINED)

    def narrow(self):
        return nullcontext() if self.kind == "smolvla" else narrow_pi(self.kind, self.folder / "vlm")

    def load(self, **how):
        with self.narrow():
            return load_policy(self.folder, **how)


@pytest.fixture(scope="module", params=KINDS)
def checkpoint(request, tmp_path_factory) -> Checkpoint:
    return Checkpoint(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def exact(checkpoint):
    return checkpoint.load(dtype="float32")


@pytest.fixture(scope="module")
def rounded(checkpoint):
    return checkpoint.load(dtype="bfloat16")


@pytest.mark.long
@pytest.mark.parametrize(
    "part",
    [
        ConstantSchedule(num_steps=3),
        ClampedPrefix(num_steps=3),
        HorizonAwareSchedule(num_steps=3),
        RtcGuidance(num_steps=3, exact_jacobian=False),
        RtcGuidance(num_steps=3),
        BestOfSamples(num_samples=2, num_steps=3),
        AveragedSamples(num_samples=2, num_steps=3),
    ],
    ids=lambda part: type(part).__name__,
)
def test_rows_in_bfloat16_are_within_the_bound_of_those_in_float32(exact, rounded, part):
    takes_plan = not isinstance(part, ConstantSchedule | AveragedSamples)
    asked = request(0, n=6, d=2) if takes_plan else request(0)
    (theirs,), (ours,) = rows_of(exact, part, asked), rows_of(rounded, part, asked)
    normalised = exact._network.normalised
    origin = exact._origin(asked.observation.state)
    away = precision.row_error(normalised(ours - origin), normalised(theirs - origin)[:, : theirs.shape[1]])
    assert 0.0 < away < BOUND


def test_the_row_error_is_measured_when_a_policy_is_loaded(exact, rounded):
    assert exact.row_error == 0.0
    assert 0.0 < rounded.row_error < BOUND


def test_everything_but_norms_and_what_goes_in_and_out_has_the_format_that_was_asked_for(rounded):
    """Image encoder, projector and the norms' products too, which LeRobot keeps in float32."""
    weights = rounded._network._policy.model.named_parameters()
    kept = {
        name
        for name, weight in weights
        if weight.dtype is torch.float32 and "norm.weight" not in name and "layernorm" not in name
    }
    assert {name.split(".")[0] for name in kept} <= {
        "action_in_proj", "action_out_proj", "action_time_mlp_in", "action_time_mlp_out", "state_proj",
        "time_mlp_in", "time_mlp_out",
    }  # fmt: skip


def test_a_policy_whose_rows_are_further_away_than_they_may_be_is_not_served(tmp_path, caplog):
    checkpoint = Checkpoint("smolvla", tmp_path)
    with pytest.raises(CheckpointError, match=r"differ from float32 by 0\.\d+ .*--max-row-error is 1e-06"):
        checkpoint.load(dtype="bfloat16", max_row_error=1e-6)
    with caplog.at_level(logging.INFO, logger=precision.__name__):
        assert checkpoint.load(dtype="bfloat16", max_row_error=BOUND).row_error < BOUND
    assert "in bfloat16: rows differ from float32 by" in caplog.text


def test_without_room_for_float32_it_is_said_that_nothing_was_measured(tmp_path, monkeypatch, caplog):
    checkpoint = Checkpoint("smolvla", tmp_path)
    need = 1.1 * precision.num_weights(tmp_path)
    monkeypatch.setattr(precision, "free_bytes", lambda device: 3 * need)
    assert checkpoint.load(dtype="bfloat16").row_error is None
    assert "its row error is not measured" in caplog.text
    with pytest.raises(CheckpointError, match="not measured, and --max-row-error is 1"):
        checkpoint.load(dtype="bfloat16", max_row_error=1.0)


def test_too_little_memory_is_said_before_weights_are_read_with_what_would_fit(tmp_path, monkeypatch):
    checkpoint = Checkpoint("smolvla", tmp_path)
    need = 1.1 * precision.num_weights(tmp_path)
    monkeypatch.setattr(precision, "free_bytes", lambda device: 3 * need)
    with pytest.raises(InvalidValueError, match=r"in float32 take .* GB free; `--dtype bfloat16` takes"):
        checkpoint.load(dtype="float32")
    monkeypatch.setattr(precision, "free_bytes", lambda device: need)
    with pytest.raises(InvalidValueError, match=r"in bfloat16 take .* GB free$"):
        checkpoint.load(dtype="bfloat16")


def test_a_gpu_without_bfloat16_says_what_it_computes_in(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old Card")
    gpu = torch.device("cuda")
    with pytest.raises(
        InvalidValueError, match="Old Card does not compute in bfloat16; use `--dtype float32`"
    ):
        precision.served_format(SimpleNamespace(), "bfloat16", gpu)
    assert precision.served_format(SimpleNamespace(dtype="bfloat16"), "float32", gpu) is torch.float32


def test_products_of_float32_are_rounded_within_a_chunk_only():
    gpu, cpu = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    before = torch.get_float32_matmul_precision(), gpu.fp32_precision, cpu.fp32_precision
    with float32_products("high"):
        assert torch.get_float32_matmul_precision() == "high"
        assert gpu.fp32_precision == "tf32"
        assert cpu.fp32_precision == before[2], "a policy on the CPU computes in another thread"
    assert (torch.get_float32_matmul_precision(), gpu.fp32_precision, cpu.fp32_precision) == before


@pytest.mark.parametrize("rounds", [True, False])
def test_a_chunk_begins_where_a_compiler_has_set_a_gpus_products_alone(rounds):
    """torch's own getter raises then."""
    gpu, cpu = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    before = gpu.fp32_precision, cpu.fp32_precision
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
            torch.get_float32_matmul_precision()
        with one_chunk(is_compiled=False, rounds=rounds):
            assert (torch.backends.cuda.matmul.fp32_precision == "tf32") is rounds
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    finally:
        torch.set_float32_matmul_precision("highest")
        gpu.fp32_precision, cpu.fp32_precision = before


def test_a_row_error_is_a_share_of_the_rows_and_padding_does_not_count():
    exact = np.array([[3.0, 4.0]])
    assert precision.row_error(np.array([[3.0, 4.5, 99.0]]), exact) == pytest.approx(0.1)
