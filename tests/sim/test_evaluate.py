"""The closed loop under the virtual clock, with experts in place of learned policies."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.method.table import METHODS, method_named
from robot_runtime.core.plan.correction import CorrectionHead, correction_inputs
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import CheckpointError, SchemaMismatchError, UnknownNameError
from robot_runtime.evaluation.observation_age import ObservationAge
from robot_runtime.evaluation.result import EpisodeResult
from robot_runtime.evaluation.statistics import difference_interval, summarise, wilson_interval
from sim.episodes.evaluate import run_episode
from sim.episodes.evaluation import EvaluationConfig, run_group
from sim.experts import ACTION_SPEC, make_expert
from sim.experts.policy import ExpertPolicy
from sim.scene.render import Renderer, RenderingUnavailableError
from sim.scene.task import EpisodeScore
from sim.scene.world import World
from sim.tasks import make_task
from sim.tasks.drawer import Drawer
from sim.tasks.household import EYE_SIZE
from sim.tasks.track import Track

MS = 1_000_000


class ExpertHead:
    """What a correction head is trained to be: the expert's row as seen now, minus the chunk's."""

    action_spec, lead = ACTION_SPEC, 1

    def __init__(self, task_name: str) -> None:
        self._expert = make_expert(task_name, seed=0)

    def correction(self, observation, chunk, k):
        rows = np.arange(len(chunk))
        planned = np.array([np.interp(k + self.lead, rows, column) for column in chunk.T])
        return self._expert.plan(observation)[self.lead] - planned


def tiny_head(*, scale: float) -> CorrectionHead:
    """A head of the shape that training makes for `track`, with random weights; it moves rows by `scale`."""
    observation, rng = World(make_task("track")).observe(), np.random.default_rng(0)
    chunk = np.zeros((ACTION_SPEC.horizon, ACTION_SPEC.dim))
    num_inputs = len(correction_inputs(observation, chunk, 0.0, spec=ACTION_SPEC, lead=1))
    sizes = (num_inputs, 4, 4, ACTION_SPEC.dim)
    arrays = {f"w{i}": rng.normal(size=sizes[i - 1 : i + 1]) / 4 for i in (1, 2, 3)}
    arrays |= {f"b{i}": rng.normal(size=sizes[i]) for i in (1, 2, 3)}
    arrays |= {"in_mean": np.zeros(num_inputs), "in_std": np.ones(num_inputs)}
    arrays["out_std"] = np.full(ACTION_SPEC.dim, scale)
    return CorrectionHead(action_spec=ACTION_SPEC, lead=1, max_age=20, arrays=arrays)


@pytest.mark.long
@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_same_seed_gives_the_same_commands_to_the_last_bit(method, monkeypatch):
    monkeypatch.setattr(Track, "episode_s", 3.0)
    policy = ExpertPolicy("track")
    digests = {
        run_episode(
            policy,
            task_name="track",
            method=method_named(method),
            seed=3,
            delay_ns=120 * MS,
            control_period_ns=10 * MS,
            correction_head=tiny_head(scale=0.01),
        ).result.digest
        for _ in range(2)
    }
    assert len(digests) == 1


def run_late_track(method: str, head=None, *, seed: int = 3):
    return run_episode(
        ExpertPolicy("track"),
        task_name="track",
        method=method_named(method),
        seed=seed,
        delay_ns=300 * MS,
        control_period_ns=10 * MS,
        correction_head=head,
    ).result


def test_a_chunk_that_streams_in_late_leaves_the_robot_no_gap_in_its_plan():
    """At 400 ms its second open row comes 10 ms after the first is due: the old plan bridges that."""
    late = run_episode(
        ExpertPolicy("track"),
        task_name="track",
        method=METHODS["pipelined-faster"],
        seed=3,
        delay_ns=400 * MS,
        control_period_ns=10 * MS,
    )
    began_ns = late.record.splices[0].t_ns
    held = [tick for tick in late.record.ticks if tick.now_ns > began_ns and tick.mode is Mode.HOLD]
    assert len(held) <= 1  # the first chunk has no old plan


@pytest.mark.long
def test_a_head_that_adds_nothing_changes_no_bit_and_one_that_adds_something_does():
    plain = run_late_track("time-aligned")
    assert run_late_track("a2c2", tiny_head(scale=0.0)).digest == plain.digest
    moved = run_late_track("a2c2", tiny_head(scale=0.01))
    assert moved.digest != plain.digest
    assert moved.summary["corrected_rows"] > 180  # of 200 in 10 s, and again at each splice between rows
    assert moved.summary["requests_per_s"] == plain.summary["requests_per_s"]  # it costs the server nothing


@pytest.mark.long
def test_a_perfect_head_lowers_the_error_that_lateness_makes():
    """Not to nothing: a correction comes in over a row, as hard as the arm may be accelerated."""
    errors = {
        name: np.mean(
            [run_late_track(name, head, seed=seed).score.metrics["error_mean_m"] for seed in range(4)]
        )
        for name, head in (("time-aligned", None), ("a2c2", ExpertHead("track")))
    }
    assert 1.25 * errors["a2c2"] < errors["time-aligned"]


def test_a_method_that_corrects_rows_needs_a_policy_with_a_head():
    config = EvaluationConfig(policy="track", task="track", method=METHODS["a2c2"], episodes=1)
    with pytest.raises(CheckpointError, match=r"'track' has none; .*--recipe residual --init plain_policy"):
        run_group(config, range(1))


@pytest.mark.parametrize("task", ["track", "pick_place"])
def test_the_expert_succeeds_through_the_executor_without_delay(task):
    result = run_episode(
        ExpertPolicy(task),
        task_name=task,
        method=method_named("time-aligned"),
        seed=5,
        control_period_ns=5 * MS,
    ).result
    assert result.score.success
    assert result.summary["stalled_s"] == 0.0


@pytest.mark.long
def test_a_late_expert_follows_the_target_far_better_than_one_that_stops_to_think():
    scores = {}
    for method in ("committed-prefix", "synchronous"):
        results = [
            run_episode(
                ExpertPolicy("track"),
                task_name="track",
                method=method_named(method),
                seed=seed,
                delay_ns=400 * MS,
                control_period_ns=10 * MS,
            ).result
            for seed in range(4)
        ]
        scores[method] = np.mean([r.score.metrics["error_mean_m"] for r in results])
    assert 2 * scores["committed-prefix"] < scores["synchronous"]


def test_reactions_are_as_late_as_the_answers_and_the_waiting_for_them():
    result = run_episode(
        ExpertPolicy("track"),
        task_name="track",
        method=method_named("time-aligned"),
        seed=7,
        delay_ns=200 * MS,
        control_period_ns=5 * MS,
    ).result
    assert all(0.2 <= reaction_s <= 0.2 + 0.2 + 0.01 for reaction_s in result.score.reactions_s)
    assert result.summary["latency_p50_s"] == pytest.approx(0.2)


def test_an_unknown_task_lists_the_valid_ones():
    with pytest.raises(UnknownNameError, match="'juggle'; valid: clear, conveyor, drawer, fetch"):
        run_episode(ExpertPolicy("track"), task_name="juggle", method=method_named("naive"), seed=0)


def test_an_unknown_method_lists_the_valid_ones():
    with pytest.raises(UnknownNameError, match=r"valid: .*cross-fade, faster, naive, .*vlash"):
        method_named("magic")


def test_a_policy_for_another_task_is_refused_before_anything_moves():
    with pytest.raises(SchemaMismatchError, match="state size: the robot has 5, the policy needs 6"):
        run_episode(ExpertPolicy("track"), task_name="pick_place", method=method_named("naive"), seed=0)


def test_the_interval_of_a_difference_is_that_of_its_paper():
    assert difference_interval(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=5e-5)


@given(st.integers(1, 200), st.integers(1, 200), st.data())
def test_the_interval_of_a_difference_holds_it_and_turns_with_it(n_a, n_b, data):
    a, b = data.draw(st.integers(0, n_a)), data.draw(st.integers(0, n_b))
    low, high = difference_interval(a, n_a, b, n_b)
    assert -1.0 - 1e-9 <= low <= a / n_a - b / n_b <= high <= 1.0 + 1e-9
    assert difference_interval(b, n_b, a, n_a) == pytest.approx((-high, -low))


def test_the_wilson_interval_is_honest_at_the_ends():
    assert wilson_interval(0, 0) == (0.0, 1.0)
    low, high = wilson_interval(100, 100)
    assert high == pytest.approx(1.0)
    assert low == pytest.approx(0.963, abs=1e-3)  # 1 / (1 + z²/n)
    low, high = wilson_interval(50, 100)
    assert (low, high) == (pytest.approx(0.4038, abs=1e-3), pytest.approx(0.5962, abs=1e-3))


def test_a_summary_takes_the_worst_seam_and_the_mean_of_the_rest():
    def result(success: bool, jump: float) -> EpisodeResult:
        return EpisodeResult(
            seed=0,
            score=EpisodeScore(
                success=success, completion_s=None, metrics={"error_mean_m": jump}, reactions_s=(0.1, 0.3)
            ),
            summary={"seam_jump_max": jump, "stalled_s": 2 * jump},
            digest="",
        )

    out = summarise([result(True, 0.1), result(False, 0.3)])
    assert out["success"] == 0.5
    assert out["seam_jump_max"] == 0.3
    assert out["stalled_s"] == pytest.approx(0.4)
    assert out["reaction_p50_s"] == pytest.approx(0.2)


DT_NS = 50_000_000


def known(answers, until_ns: int) -> list[int | None]:
    """What commands know, tick by tick, of answers as (capture, arrival, committed rows) [ns, ns, rows]."""
    informed, out = ObservationAge(DT_NS), []
    for request_id, (_, _, d) in enumerate(answers):
        informed.asked(SimpleNamespace(request_id=request_id, inference_delay=d))
    splices = []
    for request_id, (captured_ns, arrived_ns, _) in enumerate(answers):
        source = SimpleNamespace(request_id=request_id, t_obs_ns=captured_ns)
        seam = SimpleNamespace(first_row=(arrived_ns - captured_ns) // DT_NS + 1)
        splices.append(SimpleNamespace(t_ns=arrived_ns, source=source, t0_ns=captured_ns, seam=seam))
    for now_ns in range(0, until_ns, DT_NS // 5):
        arrived = [splice for splice in splices if splice.t_ns <= now_ns]
        last = arrived[-1] if arrived else None
        tick = SimpleNamespace(now_ns=now_ns, mode=Mode.RUN, source=last and last.source)
        out.append(informed.t_obs_ns(tick, last))
    return out


def test_an_answer_counts_as_seen_when_the_robot_leaves_its_last_committed_row():
    seen = known([(0, 4 * DT_NS, 8)], until_ns=10 * DT_NS)
    assert seen[7 * 5 - 1] is None
    assert seen[7 * 5] == 0


def test_an_answer_that_repeats_rows_knows_what_they_knew():
    """The second comes before the first one's row 8, and commits to it: the first is known all the same."""
    seen = known([(0, 4 * DT_NS, 8), (4 * DT_NS, 6 * DT_NS, 8)], until_ns=14 * DT_NS)
    assert seen[7 * 5] == 0
    assert seen[11 * 5 - 1] == 0
    assert seen[11 * 5] == 4 * DT_NS


SMALL = (48, 64)


class WatchingExpert(ExpertPolicy):
    """Keeps what it is shown, and wants to see through two cameras, one at a size of its own."""

    def __init__(self, task_name: str) -> None:
        super().__init__(task_name)
        schema = replace(self.info.schema, cameras={"chest": EYE_SIZE, "wrist": SMALL})
        self.info = replace(self.info, schema=schema)
        self.seen: list[Observation] = []

    def infer(self, request):
        self.seen.append(request.observation)
        return super().infer(request)


@pytest.mark.long
def test_a_policy_that_looks_is_shown_pictures_of_the_moment_it_asked(monkeypatch):
    monkeypatch.setattr(Drawer, "episode_s", 8.0)  # it has driven there and turned
    try:
        Renderer(World(make_task("drawer")).model, size=EYE_SIZE).close()
    except RenderingUnavailableError as error:
        pytest.skip(str(error))
    policy = WatchingExpert("drawer")
    episode = run_episode(
        policy,
        task_name="drawer",
        method=METHODS["committed-prefix"],
        seed=10_000,
        delay_ns=300 * MS,
        control_period_ns=10 * MS,
    )
    blind = run_episode(
        ExpertPolicy("drawer"),
        task_name="drawer",
        method=METHODS["committed-prefix"],
        seed=10_000,
        delay_ns=300 * MS,
        control_period_ns=10 * MS,
    )
    assert episode.result.digest == blind.result.digest
    assert len(policy.seen) > 20
    for observation in policy.seen:
        sizes = {name: image.pixels.shape[:2] for name, image in observation.images.items()}
        assert sizes == {"chest": EYE_SIZE, "wrist": SMALL}
        for image in observation.images.values():
            assert abs(image.t_ns - observation.t_obs_ns) <= 2 * MS
    first, last = (policy.seen[i].images["chest"].pixels.astype(int) for i in (0, -1))
    assert np.abs(first - last).mean() > 10.0  # it has moved in between
