"""`robot-runtime record --env`: records a user's expert in a user's env, in several processes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from robot_runtime.core.env import Env
from robot_runtime.errors import InvalidValueError
from robot_runtime.evaluation.evaluate import is_env
from robot_runtime.evaluation.gymnasium_env import GymnasiumEnv
from robot_runtime.evaluation.stepped_env import is_gymnasium
from robot_runtime.evaluation.steps import Expert, ExpertEpisode, RecordedSteps, play_expert, recorded
from robot_runtime.evaluation.workers import worker_pool
from robot_runtime.load_object import load_object
from sim.commands.eval_env import GROUP_SIZE, env_or_maker


@dataclass(frozen=True, kw_only=True)
class EnvRecording:
    """Configuration of a recording; its steps do not depend on the number of processes."""

    env: str
    env_file: Path | None
    expert: str
    """As `load_object` takes it."""
    noise: float
    seeds: range

    def run(self) -> list[ExpertEpisode]:
        """Record all episodes in this process."""
        env, expert = self.made(), _expert(self.expert)
        return [play_expert(env, expert, seed=seed, noise=self.noise) for seed in self.seeds]

    def made(self) -> Env:
        """Return the env; InvalidValueError: it is not one of plain numbers."""
        found = env_or_maker(self.env, self.env_file)
        env = found() if callable(found) and not is_env(found) else found
        if is_gymnasium(env) and not isinstance(env, Env):
            env = GymnasiumEnv(env)
        if not isinstance(env, Env):
            raise InvalidValueError(
                f"--env {self.env} is no env of plain numbers, and only those are recorded"
            )
        return env

    def groups(self) -> list["EnvRecording"]:
        """Split the recording into groups of episodes."""
        starts = range(self.seeds.start, self.seeds.stop, GROUP_SIZE)
        return [replace(self, seeds=self.seeds[i - self.seeds.start :][:GROUP_SIZE]) for i in starts]


def _expert(name: str) -> Expert:
    found = load_object(name, group="robot_runtime.experts", what="expert")
    if not callable(found):
        raise InvalidValueError(f"--expert {name} is no function of an env but a {type(found).__name__}")
    return found


def record_env(
    recording: EnvRecording, on_episode: Callable[[ExpertEpisode], None], *, workers: int
) -> RecordedSteps:
    """Run all episodes and keep those that succeed; `on_episode` gets each one when its group ends."""
    info = recording.made().info
    _expert(recording.expert)
    episodes: list[ExpertEpisode] = []
    with worker_pool(workers) as pool:
        for done in pool.imap(EnvRecording.run, recording.groups()):
            episodes += done
            for episode in done:
                on_episode(episode)
    return recorded(info, episodes)
