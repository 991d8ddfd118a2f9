"""LeRobot's own engine as a row of the comparison."""

from dataclasses import dataclass

from robot_runtime.core.method.latency import LATENCY_QUANTILE
from robot_runtime.evaluation.result import EpisodeResult
from scripts.lab.baselines.lerobot_settings import Variant
from sim.episodes.evaluation import EvaluationConfig, PeerEngine


@dataclass(frozen=True, kw_only=True)
class LeRobotEngine(PeerEngine):
    """LeRobot's own engine with our policy, see `lerobot_rtc`."""

    variant: Variant

    def run_episode(self, config: EvaluationConfig, seed: int) -> EpisodeResult:
        """Set the peer up for the delay measured before: the same quantile that our methods use."""
        from scripts.lab.baselines.lerobot_rtc import run_peer_episode

        trace = config.trace
        episode = run_peer_episode(
            config.policy,
            task_name=config.task,
            variant=self.variant,
            seed=seed,
            delay_ns=lambda t_ns: trace.delay_ns(t_ns + trace.offset_ns(seed)),
            expected_delay_ns=trace.quantile_ns(LATENCY_QUANTILE),
            lost_after_ns=trace.deadline_ns,
            control_period_ns=config.control_period_ns,
        )
        return episode.result
