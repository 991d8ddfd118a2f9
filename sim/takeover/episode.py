"""Episodes of `fetch` with a deliberately faulty policy, with and without a person who takes over."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from robot_runtime.core.authority import Authority
from robot_runtime.core.method.table import method_named
from robot_runtime.core.orders import TakeOver
from robot_runtime.core.policy import Policy
from robot_runtime.evaluation.loop import play, play_together
from robot_runtime.evaluation.result import Episode
from robot_runtime.evaluation.traces import constant
from robot_runtime.log.config import LogConfig
from sim.episodes.task_env import TaskEnv
from sim.experts.policy import ExpertPolicy
from sim.takeover.person import PersonRules, ScriptedPerson
from sim.takeover.short_sighted import ShortSightedPolicy

PERIOD_NS = 10_000_000
"""Period of the control loop: 100 Hz [ns]."""
DELAY_MS = 100.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Takeover:
    """One episode, and the person's takeovers in it."""

    seed: int
    episode: Episode
    reasons: tuple[str, ...]
    """Reason of each takeover."""

    @property
    def success(self) -> bool:
        return self.episode.result.score.success

    @property
    def num_takeovers(self) -> int:
        """Number of takeovers that were carried out."""
        return sum(
            isinstance(each.order, TakeOver) and not each.refused for each in self.episode.record.orders
        )

    @property
    def human_share(self) -> float:
        """Share of the episode's ticks in which the person moved any part."""
        ticks = self.episode.record.ticks
        return sum(Authority.HUMAN in tick.authority.values() for tick in ticks) / max(len(ticks), 1)


def bad_policy() -> Policy:
    """The expert of `fetch` that sees the cup too near."""
    return ShortSightedPolicy(ExpertPolicy("fetch"))


def run_takeover(
    policy: Policy,
    seed: int,
    *,
    has_person: bool = True,
    rules: PersonRules | None = None,
    env: TaskEnv | None = None,
    log: LogConfig | None = None,
    method: str = "time-aligned",
) -> Takeover:
    """Run one episode under the virtual clock, each answer `DELAY_MS` late; the same seed, the same bits.

    env: of `fetch`; None makes one.
    """
    world = env or TaskEnv("fetch", control_period_ns=PERIOD_NS)
    period_ns = world.info.control_period_ns
    person = ScriptedPerson(period_ns=period_ns, rules=rules) if has_person else None
    playing = play(
        policy,
        world,
        method=method_named(method, execution_horizon=2),
        seed=seed,
        trace=constant(DELAY_MS),
        log=log,
        person=person,
    )
    [episode] = play_together(policy, [playing])
    episode = replace(episode, snapshots=world.snapshots)
    return Takeover(seed=seed, episode=episode, reasons=() if person is None else tuple(person.why))


def run_both(policy: Policy, seeds: range) -> Iterator[tuple[Takeover, Takeover]]:
    """For each seed, run an episode without the person and one with."""
    for seed in seeds:
        yield run_takeover(policy, seed, has_person=False), run_takeover(policy, seed)
