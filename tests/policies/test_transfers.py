"""What a GPU is asked for, tried without one: torch's fake tensors say which device they are on and hold
no numbers, so whoever mixes devices or looks at a number that the device has yet to compute fails."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from policies.flow import inference, sampler, transfers
from policies.flow.inference import Batch, ChunkSampler
from policies.flow.model import FlowTransformer, ModelConfig
from policies.flow.transfers import MAX_AHEAD, on_host, to_device
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    LambdaMaskedPrefix,
    PrefixPreservedStart,
    RtcGuidance,
    SamplerPart,
)

H, D, GPU = 8, 3, torch.device("cuda:0")
PARTS = (
    ConstantSchedule(),
    ClampedPrefix(),
    HorizonAwareSchedule(num_steps=4),
    RtcGuidance(exact_jacobian=False),  # the exact one differentiates, which wants a real GPU
    BestOfSamples(num_samples=3),
    AveragedSamples(num_samples=2),
    PrefixPreservedStart(),
    LambdaMaskedPrefix(),
)


class OnFakeGpu:
    """Our network, its weights on a GPU that is not there."""

    looks_back_only, renoises, whole = False, False, None
    horizon, row_dim, num_steps, device = H, D, 4, GPU

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        config = ModelConfig(
            state_dim=4, num_tasks=1, action_dim=D, horizon=H, width=32, num_layers=1, num_heads=2
        )
        with self.mode, GPU:
            self.model = FlowTransformer(config)
            # transformers wraps torch.linspace while it loads a model. If torch looks just then which
            # functions have a default device, linspace has none from there on.
            for module in self.model.modules():
                for name, buffer in module.named_buffers(recurse=False):
                    setattr(module, name, buffer.to(GPU))
        self.num_final: list[int] = []

    def chunk(self) -> AbstractContextManager[None]:
        return nullcontext()

    def put(self, tensor: Tensor, device: torch.device) -> Tensor:
        assert device == GPU
        with self.mode:
            return self.mode.from_tensor(tensor).to(GPU)

    def encode(self, seen: Tensor) -> Tensor:
        with self.mode:
            return self.model.encode(
                self.put(seen, GPU), torch.zeros(len(seen), dtype=torch.long, device=GPU)
            )

    def velocity(
        self, x: Tensor, t: Tensor, context: Tensor, is_prefix: Tensor | None, times: Tensor
    ) -> Tensor:
        self.num_final.append(sampler.num_final(times))
        with self.mode:
            return self.model.velocity(x, t, context.repeat_interleave(len(x) // len(context), 0), is_prefix)

    def normalised(self, rows: np.ndarray) -> np.ndarray:
        return rows

    def restored(self, rows: Tensor) -> np.ndarray:
        return rows.numpy()


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_no_step_looks_at_what_the_device_has_yet_to_compute(
    part: SamplerPart, monkeypatch: pytest.MonkeyPatch
):
    network, launched = OnFakeGpu(), []

    def keep(steps: Iterator[tuple[object, Tensor | None]], device: torch.device) -> Iterator:
        launched.extend(steps)
        return iter(())

    for module in (inference, sampler):
        monkeypatch.setattr(module, "to_device", network.put)
    monkeypatch.setattr(inference, "on_host", keep)
    prefixless = isinstance(part, ConstantSchedule | AveragedSamples)
    batch = Batch(
        seen=torch.zeros(2, 4),
        planned=[np.zeros((5, D)), np.zeros((6, D))],
        delays=[0, 0] if prefixless else [2, 3],
        seeds=[0, 1],
    )
    assert not list(ChunkSampler(network).run(batch, part))
    (_, num_final), rows = launched[-1]
    assert num_final == [H, H]
    assert rows is not None
    assert rows.device == GPU
    assert rows.shape == (2, H, D)
    if isinstance(part, ClampedPrefix):
        assert network.num_final == [2] * 4
    if isinstance(part, HorizonAwareSchedule):
        assert network.num_final[0] == 2
        assert network.num_final == sorted(network.num_final)


def test_looking_at_a_number_on_the_device_would_have_failed():
    rows = OnFakeGpu().put(torch.ones(2), GPU)
    with pytest.raises(DataDependentOutputException):
        int(rows.sum())


def test_on_a_cpu_rows_come_as_soon_as_they_are_computed_and_nothing_runs_ahead():
    computed = []

    def steps() -> Iterator[tuple[int, Tensor | None]]:
        for k in range(4):
            computed.append(k)
            yield k, None if k == 1 else torch.full((2,), float(k))

    rows = on_host(steps(), torch.device("cpu"))
    seen = [(tag, None if x is None else x.tolist(), len(computed)) for tag, x in rows]
    assert seen == [(0, [0.0, 0.0], 1), (1, None, 2), (2, [2.0, 2.0], 3), (3, [3.0, 3.0], 4)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_rows_are_those_of_their_step_though_later_ones_have_been_launched():
    x = to_device(torch.ones(1 << 20), torch.device("cuda:0"))

    def steps() -> Iterator[tuple[int, Tensor | None]]:
        now = x
        for k in range(6):
            now = now + 1.0
            yield k, None if k == 2 else now

    rows = on_host(steps(), torch.device("cuda:0"))
    assert [(tag, None if x is None else x.unique().tolist()) for tag, x in rows] == [
        (k, None if k == 2 else [k + 2.0]) for k in range(6)
    ]


class Device:
    """Does what it was given when somebody waits for it, in order; `finishes` of it by itself."""

    def __init__(self, finishes: int = 0) -> None:
        self.launched = self.done = 0
        self.finishes = finishes

    def start(self, tensor: Tensor | None) -> tuple[Tensor | None, "Device.Event"]:
        self.launched += 1
        return tensor, Device.Event(self, self.launched)

    class Event:
        def __init__(self, device: "Device", number: int) -> None:
            self.device, self.number = device, number

        def query(self) -> bool:
            return self.number <= max(self.device.done, self.device.finishes)

        def synchronize(self) -> None:
            self.device.done = max(self.device.done, self.number)


@pytest.mark.parametrize(("finishes", "ahead"), [(0, MAX_AHEAD), (8, 0)])
def test_a_device_is_given_steps_ahead_but_not_all_of_them(
    finishes: int, ahead: int, monkeypatch: pytest.MonkeyPatch
):
    device = Device(finishes)
    monkeypatch.setattr(transfers, "_Copies", lambda _: device)
    steps = ((k, None if k == 3 else torch.tensor(k)) for k in range(8))
    seen = [(tag, rows, device.launched) for tag, rows in on_host(steps, GPU)]
    assert [(tag, rows) for tag, rows, _ in seen] == [(k, None if k == 3 else k) for k in range(8)]
    assert [launched for *_, launched in seen] == [min(8, k + 1 + ahead) for k in range(8)]


def test_of_a_chunk_that_nobody_wants_any_more_no_further_step_is_launched(monkeypatch: pytest.MonkeyPatch):
    device = Device()
    monkeypatch.setattr(transfers, "_Copies", lambda _: device)
    rows = on_host(((k, torch.tensor(k)) for k in range(8)), GPU)
    next(rows)
    rows.close()
    assert device.launched == 1 + MAX_AHEAD
