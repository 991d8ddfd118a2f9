"""LeRobot's VLAs with random weights: what `bench gpu` measures, small, on the CPU."""

import json

import numpy as np
import pytest
import torch

from policies.flow.inference import Batch, ChunkSampler
from robot_runtime.cli.bench_gpu import BenchGpu
from robot_runtime.core.sampler_parts import HorizonAwareSchedule

pytest.importorskip("lerobot", reason="whose policies they are")
pytest.importorskip("transformers", reason="SmolVLA and pi need it")

from policies.lerobot_flow import LeRobotFlow, compile_network
from policies.lerobot_random import random_batch, random_policy
from policies.lerobot_timing import LEROBOT, STAGES, floor, lerobots_times, peak_of, stage_times


@pytest.fixture(scope="module", params=["smolvla", "pi05"])
def policy(request):
    return random_policy(request.param, is_small=True, num_cameras=2, device="cpu")


def network_of(policy) -> LeRobotFlow:
    config = policy.config
    return LeRobotFlow(policy, lambda rows: rows, horizon=config.chunk_size, dim=config.max_action_dim)


def chunks(policy, network: LeRobotFlow, part) -> np.ndarray:
    batch = Batch(
        seen=random_batch(policy, 2),
        planned=[np.zeros((0, network.row_dim))] * 2,
        delays=[0, 0],
        seeds=[1, 2],
    )
    return [progress.rows for progress in ChunkSampler(network).run(batch, part)][-1]


def test_every_stage_is_timed_and_has_a_floor(policy):
    peak = peak_of(torch.device("cpu"), torch.float32)
    times = stage_times(policy, network_of(policy), 2, n=2) | {LEROBOT: lerobots_times(policy, 2, n=2)}
    floors = floor(policy, 2, peak)
    assert set(times) == set(floors) == set(STAGES)
    for stage, taken in times.items():
        assert len(taken) == 2
        assert 0.0 < floors[stage] < 60.0


def test_more_robots_raise_the_floor_of_what_computes_and_hardly_that_of_what_reads(policy):
    peak = peak_of(torch.device("cpu"), torch.float32)
    one, many = floor(policy, 1, peak), floor(policy, 64, peak)
    assert all(many[stage] >= one[stage] for stage in STAGES)
    assert many["prefill"] == pytest.approx(64 * one["prefill"], rel=0.5)


def test_what_is_compiled_gives_the_same_rows(policy, monkeypatch):
    network, part = network_of(policy), HorizonAwareSchedule(num_steps=3)
    expected = chunks(policy, network, part)
    model = policy.model
    both = model.paligemma_with_expert if hasattr(model, "paligemma_with_expert") else model.vlm_with_expert
    for owner, name in ((model, "embed_prefix"), (model, "denoise_step"), (both, "forward")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # to be put back
    compile_network(policy, backend="eager")
    np.testing.assert_allclose(chunks(policy, network, part), expected, atol=1e-5)


def test_a_cpu_without_bfloat16_is_measured_in_float32(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    figures = tmp_path / "gpu.json"
    bench = BenchGpu(
        models=("smolvla",), batches=(1,), small=True, device="cpu", compile=False, n=1, json=figures
    )
    assert bench.main() == 0
    assert json.loads(figures.read_text())["dtype"] == "float32"
