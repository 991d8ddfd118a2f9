"""Measures how soon methods react on `track`, against the bound of their answers.

When a command can depend on an observation follows from delays, rows and ticks and not from the contents of
rows, so the policy is a formula that holds still: no training, no network, and any chunk.

    episode    0                                          last counted        end
               |----x--------------x--------------x------------|----x----------|
                                                               |-- longest ----|   an event here might stay
                                                                                   unanswered: not counted
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache, partial

from policies.scripted import HoldPolicy
from robot_runtime.core.method.table import Method, method_named
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.evaluation.loop import play_together
from robot_runtime.evaluation.traces import find_trace
from robot_runtime.evaluation.workers import worker_pool
from scripts.lab.scores import Moments, Reaction
from sim.episodes.evaluate import play_task
from sim.scene.world import World
from sim.tasks.track import Track

FIRST_SEED = 10_000
TICKS_PER_ROW = 10


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """Size and spacing of what a policy answers with."""

    name: str
    horizon: int
    dt_ns: int


OURS = Chunks(name="32 rows at 20 Hz", horizon=32, dt_ns=50_000_000)
VLASH = Chunks(name="25 rows at 50 Hz", horizon=25, dt_ns=20_000_000)
"""Of VLASH's table of reaction times (arXiv 2512.01031)."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way of running one kind of chunk under one delay."""

    chunks: Chunks
    trace: str
    """As `find_trace` takes it."""
    method: str
    execution_horizon: int | None = None
    """Rows from one observation to the next; None is the method's own."""

    @property
    def name(self) -> str:
        rows = "" if self.execution_horizon is None else f", s = {self.execution_horizon}"
        return f"{self.method}{rows}"

    def parts(self) -> Method:
        """The method itself."""
        return method_named(self.method, execution_horizon=self.execution_horizon)


def cases(default: str) -> list[Case]:
    """Synchronous and the default; with short rows also as soon as the last answer is there (s = 1).

    Where an answer takes longer than the default's 4 rows, that is what the default does anyway.
    """
    out = []
    for chunks, trace in ((OURS, "300ms"), (OURS, "400ms"), (VLASH, "30ms"), (VLASH, "300ms")):
        base = Case(chunks=chunks, trace=trace, method="synchronous")
        out += [base, replace(base, method=default)]
    prompt = Case(chunks=VLASH, trace="30ms", method=default, execution_horizon=1)
    return [*out, prompt, Case(chunks=OURS, trace="lognormal", method=default)]


@dataclass(frozen=True, kw_only=True)
class Episode:
    """What one episode gives: (time of the event, reaction) and (interval, TTFA) of every answer [s]."""

    events: tuple[tuple[float, float], ...]
    answers: tuple[tuple[float, float], ...]
    requests_per_s: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a case comes to."""

    case: Case
    episodes: int
    events: int
    mean_half_width_s: float
    """Of the measured mean's 95 % interval."""
    measured: Reaction
    bound: Reaction
    requests_per_s: float

    def as_dict(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "chunks": self.case.chunks.name,
            "delay": self.case.trace,
            "method": self.case.name,
            "episodes": self.episodes,
            "events": self.events,
            "measured": asdict(self.measured),
            "measured_mean_half_width_95_s": self.mean_half_width_s,
            "bound": asdict(self.bound),
            "mean_over_bound": self.measured.mean_s / self.bound.mean_s,
            "requests_per_s": self.requests_per_s,
        }


def outcome(case: Case, found: list[Episode]) -> Outcome:
    """The episodes of a case, put together."""
    answers = [answer for episode in found for answer in episode.answers]
    bound = Reaction.bound(answers)
    last_s = Track.episode_s - bound.worst_s
    times = [reaction for episode in found for at_s, reaction in episode.events if at_s <= last_s]
    mean = Moments.of(times).estimate
    return Outcome(
        case=case,
        episodes=len(found),
        events=len(times),
        mean_half_width_s=mean.half_width if mean and mean.half_width else math.inf,
        measured=Reaction.measured(times),
        bound=bound,
        requests_per_s=Moments.of([episode.requests_per_s for episode in found]).mean,
    )


def run_one(case: Case, seed: int) -> Episode:
    """One episode of a case."""
    world = _world()
    task = world.task
    assert isinstance(task, Track)
    world.reset(seed)
    changes = task.change_times_ns(round(task.episode_s * NS_PER_S))
    policy = HoldPolicy(task.schema, horizon=case.chunks.horizon, dt_ns=case.chunks.dt_ns)
    episode = play_task(
        policy,
        task_name=task.name,
        method=case.parts(),
        seed=seed,
        trace=find_trace(case.trace),
        control_period_ns=case.chunks.dt_ns // TICKS_PER_ROW,
    )
    result = play_together(policy, [episode])[0].result
    # Changes are answered in their order, so those without an answer are the last.
    events = zip(changes, result.score.reactions_s, strict=False)
    return Episode(
        events=tuple((t_ns / NS_PER_S, reaction_s) for t_ns, reaction_s in events),
        answers=tuple(answer for answer in result.arrivals if answer[0] > 0.0),
        requests_per_s=result.summary["requests_per_s"],
    )


@cache
def _world() -> World:
    """The process's own, to look up when the target turns."""
    return World(Track())


def measure(
    default: str, *, episodes: int, workers: int, on_case: Callable[[Outcome], None]
) -> list[Outcome]:
    """All cases, in order and with the same seeds; `on_case` gets each."""
    out = []
    seeds = range(FIRST_SEED, FIRST_SEED + episodes)
    with worker_pool(workers, threads=1) as pool:
        for case in cases(default):
            out.append(outcome(case, pool.map(partial(run_one, case), seeds)))
            on_case(out[-1])
    return out
