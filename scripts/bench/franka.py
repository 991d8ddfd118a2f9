"""`python -m scripts.bench franka`: the whole Franka driver, on a robot that speaks the real protocol."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.progress import track

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import Count, Maybe, OutputFile, Processes, Seed, need
from robot_runtime.core.method.choose import Default, default_for
from robot_runtime.evaluation.statistics import wilson_interval
from robot_runtime.evaluation.traces import constant
from robot_runtime.server.process import ServerProcess
from scripts.harness import finish

if TYPE_CHECKING:
    from robot_runtime.evaluation.result import EpisodeResult

OWN_DELAY_MS = 10.0
"""Of answers in our own simulation; a server on the same machine takes about as long."""


@dataclass(frozen=True, kw_only=True)
class BenchFranka:
    """Run `pick_place` by the shipped policy on franky-sim through the Franka driver, and follow a sine.

    Server, ZeroMQ, control loop, driver and the Franka control interface are the real ones; the cube, the
    wall and the tray are simulated in franky-sim's own MuJoCo. The same seeds run in our own simulation
    beside it. Time is the robot's, as franky-sim runs slower than the clock on a small machine.
    """

    policy: str = "pick_place"
    """Name of a shipped policy, or a checkpoint folder, for pick_place."""
    episodes: Count = 20
    """How many seeds."""
    seed: Seed = 20_000
    """The first of them."""
    workers: Processes = 1
    """Processes of our own simulation."""
    json: Maybe[OutputFile] = None
    """Write the figures to this file, as JSON."""

    def main(self) -> int:
        """Measure, print, and write the figures if asked; returns the exit code."""
        need("franky", "franky_sim", "mujoco", "torch")
        from scripts.lab.fci.episodes import run_episode, sine_error
        from scripts.tables.robustness import franka

        console = plain_console()
        with console.status("a sine of 0.15 rad at 0.25 Hz, 20 targets a second"):
            error = sine_error()
        seeds = range(self.seed, self.seed + self.episodes)
        with ServerProcess(self.policy) as server:
            fci = [
                run_episode(seed, server.address) for seed in track(seeds, "on franky-sim", console=console)
            ]
        with console.status("the same seeds in our own simulation"):
            own = self._own()
        figures = {
            "sine_error_max_rad": error,
            "policy": self.policy,
            "franky_sim": _shares([each.success for each in fci]),
            "own_simulation": _shares([each.score.success for each in own]),
            "episodes": [asdict(each) for each in fci],
            "own_episodes": [{"seed": each.seed, "success": each.score.success} for each in own],
        }
        return finish(figures, self.json, franka(figures), seeds=seeds)

    def _own(self) -> "list[EpisodeResult]":
        from policies.load import load_policy
        from sim.episodes.evaluation import EvaluationConfig, evaluate

        method = default_for(Default(), load_policy(self.policy).info.capabilities).method
        config = EvaluationConfig(
            policy=self.policy,
            task="pick_place",
            method=method,
            trace=constant(OWN_DELAY_MS),
            episodes=self.episodes,
            first_seed=self.seed,
        )
        return evaluate(config, workers=self.workers)


def _shares(successes: list[bool]) -> dict[str, Any]:
    return {
        "successes": sum(successes),
        "n": len(successes),
        "interval": wilson_interval(sum(successes), len(successes)),
    }
