"""LeRobot's flows from pictures to rows as one, on memory that stays, as a GPU would record it."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from policies import replayed as replayed_chunks
from policies.flow.inference import Batch, ChunkSampler
from policies.lerobot import flow_times, whole
from policies.lerobot.random import narrow_pi, random_batch, random_policy
from policies.load import load_policy
from policies.replayed import NUM_WARM, Replayed
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    RtcGuidance,
)
from scripts.bench.commands import main

pytest.importorskip("lerobot", reason="serves LeRobot's policies")
pytest.importorskip("transformers", reason="SmolVLA and pi need it")

from policies.lerobot.flow import LeRobotFlow
from tests.policies.test_lerobot_flow import TRAINED, request, rows_of
from tests.policies.tiny_vla import save_pi

KINDS = ("smolvla", "pi0", "pi05")
PARTS = (
    ConstantSchedule(num_steps=3),
    ClampedPrefix(num_steps=3),
    HorizonAwareSchedule(num_steps=4),
    HorizonAwareSchedule(num_steps=4, early_stop_rows=3),
    RtcGuidance(num_steps=2),
    AveragedSamples(num_samples=2, num_steps=2),
)


@pytest.fixture(params=KINDS)
def policy(request):
    return random_policy(request.param, is_small=True, num_cameras=2, device="cpu")


@pytest.fixture
def uncompiled(monkeypatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def flow_of(policy, **how: bool) -> LeRobotFlow:
    rows = {"horizon": policy.config.chunk_size, "dim": policy.config.max_action_dim}
    return LeRobotFlow(policy, lambda x: x, **rows, **how)


def asked(policy, network, part, seed: int, delays=(1, 3)) -> Batch:
    """Two robots that see something else for every seed."""
    generator = torch.Generator().manual_seed(seed)
    seen = {
        name: torch.rand(x.shape, generator=generator) if x.is_floating_point() else x
        for name, x in random_batch(policy, 2, num_words=10 + seed).items()
    }
    takes_plan = not isinstance(part, ConstantSchedule | AveragedSamples)
    planned = np.random.default_rng(seed).normal(size=(9 * takes_plan, network.row_dim))
    return Batch(seen=seen, planned=[planned] * 2, delays=[d * takes_plan for d in delays], seeds=[seed, 7])


def progress(network, batch: Batch, part) -> list[tuple[int, list[int], np.ndarray]]:
    """Each time that rows are out: calls, how many rows, and these."""
    out = []
    for come in ChunkSampler(network).run(batch, part):
        if come.rows is not None:
            chunks = [rows[:n].copy() for rows, n in zip(come.rows, come.num_final, strict=True)]
            out.append((come.num_calls, come.num_final, np.concatenate(chunks)))
    return out


@pytest.mark.long
def test_a_chunk_as_one_gives_the_rows_of_its_steps_when_they_are_final(policy, uncompiled):
    network = flow_of(policy)
    batches = {
        (part, seed): asked(policy, network, part, seed, delays)
        for part in PARTS
        for seed, delays in ((1, (1, 3)), (2, (1, 3)), (3, (0, 5)))
    }
    expected = {key: progress(network, batch, key[0]) for key, batch in batches.items()}
    for is_compiled in (False, True):
        as_one = flow_of(policy, is_compiled=is_compiled, is_whole=True)
        for key, batch in batches.items():
            ours = progress(as_one, batch, key[0])
            assert [come[:2] for come in ours] == [come[:2] for come in expected[key]]
            for (*_, rows), (*_, wanted) in zip(ours, expected[key], strict=True):
                np.testing.assert_allclose(rows, wanted, atol=1e-5)
        assert as_one.whole._kinds


def nothing(given, *, tensor=torch.tensor, **how):
    assert given == [], f"a graph would copy {given} from the host, which may be gone when it is replayed"
    return tensor(given, **how)


@pytest.mark.long
def test_all_that_the_host_decides_is_in_the_buffers(policy, uncompiled):
    """What is traced once, as a graph is recorded, gives other robots' rows from their numbers alone."""
    network, part = flow_of(policy, is_compiled=True, is_whole=True), HorizonAwareSchedule(num_steps=2)
    first, second = (asked(policy, network, part, seed, d) for seed, d in ((1, (1, 3)), (2, (2, 2))))
    traced = []

    class Traced(Replayed):
        def run(self, inputs):
            if not traced:
                with pytest.MonkeyPatch.context() as patched:
                    for name in ("tensor", "as_tensor", "from_numpy"):
                        patched.setattr(torch, name, nothing)
                    traced.append(make_fx(lambda given: list(self._function(given)))(dict(inputs)))
            return iter(traced[0](dict(inputs)))

    expected = [progress(network, batch, part)[-1][-1] for batch in (first, second)]
    network.whole._kinds.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(whole, "Replayed", Traced)
        for batch, wanted in zip((first, second), expected, strict=True):
            np.testing.assert_allclose(progress(network, batch, part)[-1][-1], wanted, atol=1e-5)
    assert len(traced) == 1


def test_more_flow_times_than_the_table_holds_are_asked_for_step_by_step(policy, uncompiled, monkeypatch):
    part = HorizonAwareSchedule(num_steps=4)
    batch = asked(policy, flow_of(policy), part, 1)
    expected = progress(flow_of(policy), batch, part)[-1][-1]
    network = flow_of(policy, is_compiled=True, is_whole=True)
    monkeypatch.setattr(whole, "MAX_KNOWN", 3)
    np.testing.assert_allclose(progress(network, batch, part)[-1][-1], expected, atol=1e-5)
    assert not network.whole._kinds


def test_a_table_that_stays_is_filled_where_it_is(monkeypatch):
    monkeypatch.setattr(flow_times, "MAX_KNOWN", 4)
    table = flow_times.TimeTable(lambda t: torch.stack([t, t * t], dim=-1), stays=True)
    cpu, addresses = torch.device("cpu"), set()
    for times in ([[0.0, 0.5, 0.25]], [[0.5, 0.75]], [[0.0, 0.125, 0.375]]):
        ours = torch.tensor(times, dtype=torch.float64)
        rows = table.rows(table.places(ours, cpu))
        addresses.add(table.rows(0).data_ptr())
        torch.testing.assert_close(rows[..., 0], 1.0 - ours.float())
    assert len(addresses) == 1


def test_a_run_reads_its_own_inputs_only():
    given = []

    def work(inputs):
        given.append(inputs["x"].data_ptr())
        yield inputs["x"] + 1.0
        yield inputs["x"] * 2.0

    replayed = Replayed(work, {"x": torch.zeros(2)}, num_outputs=2)
    for value in (1.0, 2.0):
        outputs = replayed.run({"x": torch.full((2,), value)})
        assert [out.tolist() for out in outputs] == [[value + 1.0] * 2, [value * 2.0] * 2]
    assert len(set(given)) == 1


def test_a_chunk_that_a_gpu_cannot_record_goes_on_without_a_graph_which_the_log_says_once(caplog):
    def work(inputs):
        yield inputs["x"] + 1.0

    replayed = Replayed(work, {"x": torch.zeros(2)}, num_outputs=1)
    replayed._is_recorded = True  # by a torch that has no GPU, or by one that has and memory elsewhere
    with caplog.at_level(logging.WARNING, logger=replayed_chunks.__name__):
        for value in range(NUM_WARM + 3):
            (out,) = replayed.run({"x": torch.full((2,), float(value))})
            assert out.tolist() == [value + 1.0] * 2
    (warning,) = caplog.messages
    assert warning.startswith("a chunk cannot be recorded as one graph and runs without one: ")


def test_a_checkpoint_that_is_served_with_one_graph_a_chunk_gives_the_rows_it_gives_without(
    tmp_path: Path, uncompiled, monkeypatch
):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "kept"))
    with narrow_pi("pi0", tmp_path / "vlm"):
        folder = save_pi("pi0", tmp_path, trained_for=TRAINED)
        plain, as_one = load_policy(folder), load_policy(folder, is_compiled=True, is_whole=True)
    for part in (ConstantSchedule(num_steps=2), HorizonAwareSchedule(num_steps=4)):
        for seed in range(3):
            (wanted,), (ours,) = (rows_of(policy, part, request(seed)) for policy in (plain, as_one))
            np.testing.assert_allclose(ours, wanted, atol=1e-5)
    assert len(as_one._network.whole._kinds) == 2


def test_a_gpu_is_not_asked_to_record_what_is_not_compiled(capsys):
    assert main(["gpu", "--one-graph", "--no-compile"]) == 1
    assert "--one-graph records what is compiled" in capsys.readouterr().err


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_replays_what_it_has_recorded(kind, uncompiled):
    policy = random_policy(kind, is_small=True, num_cameras=2, device="cuda")
    part = HorizonAwareSchedule(num_steps=4)
    network = flow_of(policy, is_compiled=True, is_whole=True)
    batches = []
    for seed in range(2 * NUM_WARM):
        batch = asked(policy, network, part, seed)
        batches.append(Batch(**vars(batch) | {"seen": {k: x.cuda() for k, x in batch.seen.items()}}))
    ours = [progress(network, batch, part) for batch in batches]
    (chunk,) = network.whole._kinds.values()
    assert len(chunk._graphs) == len(ours[0])
    network.whole = None
    for batch, come in zip(batches, ours, strict=True):
        for (*_, rows), (*_, wanted) in zip(come, progress(network, batch, part), strict=True):
            np.testing.assert_allclose(rows, wanted, atol=1e-4)
