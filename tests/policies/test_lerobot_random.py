"""LeRobot's VLAs with random weights: what `bench gpu` measures, small, on the CPU."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from policies.flow.inference import Batch, ChunkSampler
from robot_runtime.core.method.sampler_parts import ConstantSchedule, HorizonAwareSchedule, RtcGuidance
from scripts.bench.gpu import BenchGpu

pytest.importorskip("lerobot", reason="whose policies they are")
pytest.importorskip("transformers", reason="SmolVLA and pi need it")

from policies.lerobot import flow as lerobot_flow
from policies.lerobot.flow import LeRobotFlow, compile_network
from policies.lerobot.random import random_batch, random_policy
from policies.lerobot.timing import (
    FIRST_ROW,
    LEROBOT,
    PARTS,
    STAGES,
    STEP,
    WHOLE,
    floor,
    kernels_of_chunk,
    lerobots_times,
    parts_over_whole,
    peak_of,
    stage_times,
)


@pytest.fixture(scope="module", params=["smolvla", "pi05"])
def policy(request):
    return random_policy(request.param, is_small=True, num_cameras=2, device="cpu")


def network_of(policy, *, is_compiled: bool = False) -> LeRobotFlow:
    config = policy.config
    return LeRobotFlow(
        policy,
        lambda rows: rows,
        horizon=config.chunk_size,
        dim=config.max_action_dim,
        is_compiled=is_compiled,
    )


def chunks(policy, network: LeRobotFlow, part) -> np.ndarray:
    batch = Batch(
        seen=random_batch(policy, 2),
        planned=[np.zeros((0, network.row_dim))] * 2,
        delays=[0, 0],
        seeds=[1, 2],
    )
    return [progress.rows for progress in ChunkSampler(network).run(batch, part)][-1]


@pytest.mark.long
def test_every_stage_is_timed_and_has_a_floor(policy):
    peak = peak_of(torch.device("cpu"), torch.float32)
    times = stage_times(policy, network_of(policy), 2, n=2) | {LEROBOT: lerobots_times(policy, 2, n=2)}
    floors = floor(policy, 2, peak)
    assert set(times) == set(floors) == set(STAGES)
    for stage, taken in times.items():
        assert len(taken) == 2
        assert 0.0 < floors[stage] < 60.0


def test_the_parts_of_a_chunk_add_up_to_it(policy):
    network = network_of(policy)
    times = stage_times(policy, network, 1, n=5)
    assert parts_over_whole(times, network.num_steps) == pytest.approx(1.0, abs=0.03)
    assert all(min(times[part]) > 0.0 for part in PARTS)


def test_a_part_that_is_missing_is_seen_in_the_sum():
    times = {part: [1.0, 2.0] for part in PARTS} | {WHOLE: [13.0, 26.0]}
    assert parts_over_whole(times, 10) == 1.0
    assert parts_over_whole(times | {STEP: [0.5, 1.0]}, 10) == pytest.approx(8 / 13)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kernels_of_a_chunk_take_no_longer_than_the_chunk():
    policy = random_policy("smolvla", is_small=True, num_cameras=1, device="cuda")
    network = network_of(policy)
    (whole,) = stage_times(policy, network, 1, n=1)[WHOLE]
    kernels = kernels_of_chunk(policy, network, 1)
    assert kernels is not None
    assert kernels.num > 100
    assert 0.0 < kernels.seconds < 2.0 * whole


def test_without_a_gpu_there_are_no_kernels_to_count(policy):
    assert kernels_of_chunk(policy, network_of(policy), 1) is None


@pytest.mark.long
def test_more_robots_raise_the_floor_of_what_computes_and_hardly_that_of_what_reads(policy):
    peak = peak_of(torch.device("cpu"), torch.float32)
    one, many = floor(policy, 1, peak), floor(policy, 64, peak)
    assert all(many[stage] >= one[stage] for stage in STAGES)
    assert many["prefill"] == pytest.approx(64 * one["prefill"], rel=0.5)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["smolvla", "pi0", "pi05"])
def test_what_is_fused_and_compiled_gives_the_same_rows(kind, monkeypatch):
    policy = random_policy(kind, is_small=True, num_cameras=2, device="cpu")
    parts = HorizonAwareSchedule(num_steps=3), ConstantSchedule(num_steps=3), RtcGuidance(num_steps=3)
    expected = [chunks(policy, network_of(policy), part) for part in parts]
    monkeypatch.setattr(lerobot_flow, "compile_network", partial(compile_network, backend="eager"))
    network = network_of(policy, is_compiled=True)
    for part, rows in zip(parts, expected, strict=True):
        for _ in range(2):
            np.testing.assert_allclose(chunks(policy, network, part), rows, atol=1e-5)


@pytest.mark.long
def test_a_chunk_as_one_graph_is_timed_as_a_whole(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    bench = BenchGpu(models=("pi05",), batches=(1,), small=True, device="cpu", one_graph=True, n=1)
    found = bench.measured()
    assert {row["stage"] for row in found["rows"]} == {WHOLE, FIRST_ROW, LEROBOT}
    assert all(row["one_graph"] for row in found["rows"])
    (chunk,) = found["chunks"]
    assert "parts_over_whole" not in chunk


@pytest.mark.long
def test_a_cpu_without_bfloat16_is_measured_in_float32(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    figures = tmp_path / "gpu.json"
    bench = BenchGpu(
        models=("smolvla",), batches=(1,), small=True, device="cpu", compile=False, n=1, json=figures
    )
    assert bench.main() == 0
    found = json.loads(figures.read_text())
    assert found["dtype"] == "float32"
    assert found["device_before"]["name"] == found["device"] == "CPU"
    (chunk,) = found["chunks"]
    assert chunk["parts_over_whole"] == pytest.approx(1.0, abs=0.03)
    assert {(row["cameras"], row["words"], row["robots"]) for row in found["rows"]} == {(2, 20, 1)}
