"""LeRobot's flows compute nothing twice and nothing for nobody, and give the rows that LeRobot gives."""

import logging
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.flow.inference import Batch, ChunkSampler
from policies.lerobot import flow as lerobot_flow
from policies.lerobot import flow_times, prompts
from policies.lerobot.flow import LeRobotFlow
from policies.lerobot.flow_times import TimeTable
from policies.lerobot.load import lerobot_config, lerobot_policy, lerobot_steps
from policies.lerobot.metadata import PolicyMetadata
from policies.lerobot.prompts import Prompts
from policies.lerobot.random import narrow_pi, random_batch, random_policy
from policies.load import load_policy
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    RtcGuidance,
)
from robot_runtime.server.warming import warm_up
from tests.policies.test_lerobot_flow import TRAINED, observation, request, rows_of
from tests.policies.tiny_vla import HORIZON, PADDED, TASK, save_pi, save_smolvla

pytest.importorskip("lerobot", reason="serves LeRobot's policies")
pytest.importorskip("transformers", reason="SmolVLA and pi need it")
KINDS = ("smolvla", "pi0", "pi05")
PARTS = (
    ConstantSchedule(num_steps=3),
    ClampedPrefix(num_steps=3),
    HorizonAwareSchedule(num_steps=3),
    RtcGuidance(num_steps=3),
    BestOfSamples(num_samples=2, num_steps=3),
    AveragedSamples(num_samples=2, num_steps=3),
)


def flow_of(policy, *, is_compiled: bool = False) -> LeRobotFlow:
    rows = {"horizon": policy.config.chunk_size, "dim": policy.config.max_action_dim}
    return LeRobotFlow(policy, lambda rows: rows, **rows, is_compiled=is_compiled)


def chunk(network: LeRobotFlow, seen, part) -> np.ndarray:
    takes_plan = not isinstance(part, ConstantSchedule | AveragedSamples)
    planned = np.random.default_rng(5).normal(size=(9 * takes_plan, network.row_dim))
    batch = Batch(seen=dict(seen), planned=[planned] * 2, delays=[2 * takes_plan] * 2, seeds=[1, 2])
    return [progress.rows for progress in ChunkSampler(network).run(batch, part)][-1]


def counted(table: TimeTable, network: LeRobotFlow, seen, part) -> int:
    before = table.num_computed
    chunk(network, seen, part)
    return table.num_computed - before


@pytest.mark.parametrize("kind", KINDS)
def test_larger_products_and_a_table_of_flow_times_give_the_same_rows_with_every_sampler(kind, monkeypatch):
    policy = random_policy(kind, is_small=True, num_cameras=2, device="cpu")
    seen = random_batch(policy, 2)
    expected = [chunk(flow_of(policy), seen, part) for part in PARTS]
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    network = flow_of(policy, is_compiled=True)
    for part, rows in zip(PARTS, expected, strict=True):
        np.testing.assert_allclose(chunk(network, seen, part), rows, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_what_depends_on_flow_times_alone_is_computed_once_for_each_distinct_one(kind, monkeypatch):
    policy = random_policy(kind, is_small=True, num_cameras=1, device="cpu")
    seen = random_batch(policy, 2)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    network = flow_of(policy, is_compiled=True)
    table = network._table
    assert counted(table, network, seen, ConstantSchedule(num_steps=4)) == 4
    assert counted(table, network, seen, ConstantSchedule(num_steps=4)) == 0
    assert counted(table, network, seen, ConstantSchedule(num_steps=2)) == 0  # 0 and 0.5 are known
    assert counted(table, network, seen, ClampedPrefix(num_steps=4)) == 1  # committed rows are at 1
    aware = HorizonAwareSchedule(num_steps=3)
    assert 0 < counted(table, network, seen, aware) < 3 * network.horizon
    assert counted(table, network, seen, aware) == 0


def test_where_flow_times_are_in_the_table_is_looked_up_once_for_every_step_of_a_schedule(monkeypatch):
    monkeypatch.setattr(flow_times, "MAX_STEPS", 3)
    monkeypatch.setattr(flow_times, "MAX_KNOWN", 5)
    table, looked_up = TimeTable(lambda t: torch.stack([t, 2 * t], dim=-1)), []
    places = table.places
    monkeypatch.setattr(table, "places", lambda *given: looked_up.append(1) or places(*given))
    same, each = torch.full((2, 3), 0.5).double(), torch.tensor([[0.0, 0.25, 0.5], [1.0, 1.0, 0.5]]).double()

    def is_right(times: torch.Tensor) -> bool:
        told = 1.0 - times.float()
        return torch.equal(table(times, torch.device("cpu")), torch.stack([told, 2 * told], dim=-1))

    for _ in range(3):
        assert is_right(same)
        assert is_right(each)
    assert len(looked_up) == 2
    assert is_right(same.T.contiguous())  # the same bytes are another step
    assert is_right(each + 0.125)  # more than the table holds: it begins anew
    assert is_right(same)
    assert is_right(each)
    assert len(looked_up) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_masks_and_positions_are_made_once_a_chunk_and_anew_for_another_in_the_same_memory(kind, monkeypatch):
    """A GPU's graph gives every prefix in the same memory, as the same tensor."""
    policy = random_policy(kind, is_small=True, num_cameras=1, device="cpu")
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    network = flow_of(policy, is_compiled=True)
    step, embed, masks, num_made = policy.model.denoise_step, policy.model.embed_prefix, [], [0]
    seen = [random_batch(policy, 2, num_words=num, length=20) for num in (4, 18)]
    expected = [chunk(network, each, PARTS[0]) for each in seen]
    of_chunk = step.of_chunk

    def counted(*given):
        num_made[0] += 1
        return of_chunk(*given)

    def in_place(*given, **named):
        embedded, pad_masks, *rest = embed(*given, **named)
        masks[:] = masks or [pad_masks]
        return embedded, masks[0].copy_(pad_masks), *rest

    step.of_chunk, policy.model.embed_prefix = counted, in_place
    for each, rows in zip(seen, expected, strict=True):
        np.testing.assert_array_equal(chunk(network, each, PARTS[0]), rows)
    assert num_made == [2]
    assert not np.allclose(*expected)


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_a_step_of_pi_reads_the_prefix_that_lerobot_s_copies_and_gives_the_same(kind, monkeypatch):
    policy = random_policy(kind, is_small=True, num_cameras=2, device="cpu")
    context = flow_of(policy).encode(random_batch(policy, 2))
    denoise = context.denoise
    held = {
        name: cell.cell_contents
        for name, cell in zip(denoise.__code__.co_freevars, denoise.__closure__, strict=True)
    }
    given = {name: held[name] for name in held.keys() & {"prefix_pad_masks", "past_key_values", "state"}}
    x = torch.randn((2, policy.config.chunk_size, policy.config.max_action_dim))
    before = [keys for keys, *_ in given["past_key_values"]]
    with torch.no_grad():
        for t in (torch.tensor([1.0, 0.3]), torch.rand((2, policy.config.chunk_size))):
            theirs = type(policy.model).denoise_step(policy.model, **given, x_t=x, timestep=t)
            with monkeypatch.context() as patched:
                patched.delattr(sys.modules[type(policy).__module__], "clone_past_key_values")
                ours = denoise(x, t)
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert all(a is b for a, (b, *_) in zip(before, given["past_key_values"], strict=True))


def test_a_table_that_is_full_begins_anew_and_gives_the_same(monkeypatch):
    monkeypatch.setattr(flow_times, "MAX_KNOWN", 4)
    monkeypatch.setattr(flow_times, "BLOCK", 2)
    table = TimeTable(lambda t: torch.stack([t, t * t], dim=-1))
    for times in ([[0.0, 0.5, 0.25]], [[0.5, 0.75, 1.0]], [[0.0, 0.125, 0.25], [0.375, 0.5, 0.0]]):
        ours = torch.tensor(times, dtype=torch.float64)
        theirs = 1.0 - ours.float()
        torch.testing.assert_close(table(ours, torch.device("cpu")), torch.stack([theirs, theirs**2], -1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_camera_that_is_not_there_is_not_encoded_and_rows_are_lerobot_s(kind, monkeypatch):
    policy = random_policy(kind, is_small=True, num_cameras=2, device="cpu")
    policy.config.empty_cameras = 1
    seen = random_batch(policy, 2)
    del seen["observation.images.1"]
    noise = torch.stack(
        [
            torch.randn((policy.config.chunk_size, policy.config.max_action_dim), generator=generator)
            for generator in (torch.Generator().manual_seed(seed) for seed in (1, 2))
        ]
    )
    with torch.no_grad():
        theirs = policy.predict_action_chunk(dict(seen), noise=noise).numpy()
    both = getattr(policy.model, "vlm_with_expert", None) or policy.model.paligemma_with_expert
    embed, encoded = both.embed_image, []
    monkeypatch.setattr(both, "embed_image", lambda picture: encoded.append(len(picture)) or embed(picture))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    for is_compiled in (False, True):
        encoded.clear()
        ours = chunk(flow_of(policy, is_compiled=is_compiled), seen, ConstantSchedule())
        np.testing.assert_allclose(ours[:, :, : theirs.shape[2]], theirs, atol=1e-5)
        assert sum(encoded) == 2


# ---- prompts -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_prompts_without_their_padding_give_lerobot_s_rows(kind, tmp_path: Path):
    with narrow_pi(kind if kind != "smolvla" else "pi0", tmp_path / "vlm"):
        folder = (
            save_smolvla(tmp_path, trained_for=TRAINED)
            if kind == "smolvla"
            else save_pi(kind, tmp_path, trained_for=TRAINED)
        )
        ours, config = load_policy(folder), lerobot_config(folder)
        theirs, (before, after) = lerobot_policy(config, folder), lerobot_steps(config, folder)
    asked = request(3)
    batch = before(PolicyMetadata.load(folder).seen([asked.observation]))
    noise = torch.randn((1, HORIZON, PADDED), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = after(theirs.predict_action_chunk(dict(batch), noise=noise))[0].numpy()
    (rows,) = rows_of(ours, ConstantSchedule(), asked)
    np.testing.assert_allclose(rows, expected, atol=1e-5)
    words = "observation.language.tokens"
    shown = ours._seen([asked.observation])[words].shape[1]
    assert shown == int(batch["observation.language.attention_mask"].sum())
    assert shown < batch[words].shape[1] or kind != "pi0"  # SmolVLA's are not padded


class Step:
    """A tokenizer step that counts its calls: a token for each letter."""

    max_length, padding_side = 12, "right"

    def __init__(self, *, pads: bool = True) -> None:
        self.num_calls, self._pads = 0, pads
        self.input_tokenizer = type("Words", (), {"pad_token_id": 7, "__call__": self._ids})()

    def _ids(self, text: str) -> dict:
        return {"input_ids": [ord(letter) for letter in text]}

    def _tokenize_text(self, texts: list[str]) -> dict[str, torch.Tensor]:
        self.num_calls += 1
        cut = [text[: self.max_length] for text in texts]
        length = self.max_length if self._pads else max(map(len, cut))
        ids = [[*map(ord, text)] + [7] * (length - len(text)) for text in cut]
        masks = [[1] * len(text) + [0] * (length - len(text)) for text in cut]
        return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(masks)}


def test_a_text_s_tokens_are_kept_while_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(prompts, "MAX_KEPT", 2)
    step = Step()
    words = Prompts(step)
    for text, num_calls in (("a", 1), ("a", 1), ("b", 2), ("a", 2), ("c", 3), ("a", 3), ("b", 4)):
        assert step._tokenize_text([text])["input_ids"].tolist() == [[ord(text)]]
        assert step.num_calls == num_calls
    assert words.longest == 12


@pytest.mark.parametrize("pads", [True, False])
def test_compiled_prompts_have_one_of_two_lengths_whoever_padded_them(pads, monkeypatch):
    monkeypatch.setattr(prompts, "BUCKET", 4)
    words = Prompts(step := Step(pads=pads))
    words.choose(5)
    assert words.lengths == (8, 12)
    for texts, length in ((["ab"], 8), (["abcdefgh", "a"], 8), (["abcdefghi"], 12), (["a" * 20], 12)):
        tokens = step._tokenize_text(texts)
        assert tokens["input_ids"].shape == tokens["attention_mask"].shape == (len(texts), length)
        real = [min(len(text), 12) for text in texts]
        assert tokens["attention_mask"].sum(dim=1).tolist() == real
        assert (tokens["input_ids"][0, real[0] :] == 7).all()
    with words.at_least(12):
        assert step._tokenize_text(["ab"])["input_ids"].shape == (1, 12)
    words.choose(20)
    assert words.lengths == (12,)


def test_a_prompt_longer_than_the_policy_s_is_cut_which_the_log_says_once(caplog):
    Prompts(step := Step())
    with caplog.at_level(logging.WARNING, logger=prompts.__name__):
        for text in ("a" * 12, "a" * 20, "b" * 21):
            assert step._tokenize_text([text])["input_ids"].shape == (1, 12)
    (said,) = caplog.messages
    assert said.startswith("a prompt has 20 tokens, of which the policy reads the first 12")


@pytest.mark.long
def test_nothing_is_compiled_for_any_prompt_or_batch_once_a_server_says_that_all_is_warm(
    tmp_path: Path, monkeypatch
):
    """Compiling takes a minute, for which robots would wait."""
    shapes = set()

    def compiled(function, **_):
        def run(*given, **named):
            tensors = [x for x in (*given, *named.values()) if isinstance(x, torch.Tensor)]
            shapes.add((id(function), *(tuple(x.shape) for x in tensors)))
            return function(*given, **named)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(prompts, "BUCKET", 4)
    monkeypatch.setattr("policies.lerobot.flow_policy._SPARE_WORDS", 0)
    monkeypatch.setattr("robot_runtime.server.warming.LONG_NS", 10**15)  # however slow the machine is
    with narrow_pi("pi0", tmp_path / "vlm"):
        policy = load_policy(save_pi("pi0", tmp_path, trained_for=TRAINED), is_compiled=True)
    assert policy._prompts.lengths == (4, 16)
    assert policy.num_shapes == 2
    warming = warm_up(policy, MonotonicClock(), max_batch=2)
    assert (warming.num_left, warming.max_size) == (0, 2)
    known = set(shapes)
    before = policy.num_evaluations
    (short,) = rows_of(policy, ConstantSchedule(num_steps=2), request(0))
    assert policy.num_evaluations - before == 2
    longer = request(0)
    seen = observation(0)
    longer = type(longer)(
        observation=type(seen)(state=seen.state, images=seen.images, task=f"{TASK} {TASK} {TASK}"), seed=0
    )
    (rows,) = rows_of(policy, ConstantSchedule(num_steps=2), longer)
    assert shapes == known
    assert not np.allclose(rows, short, atol=1e-6)
    assert torch._dynamo.config.recompile_limit >= lerobot_flow.MOST_SHAPES
