"""LeRobot's engine, started on virtual time: `running_engine`, and one period of its control loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from policies.flow.checkpoint import Checkpoint
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import RobotRuntimeError
from scripts.lab.baselines.held_target import Cycle, PoppedRow
from scripts.lab.baselines.lerobot_import import rtc_engine_module
from scripts.lab.baselines.lerobot_policy import (
    NUM_TAGS,
    STATE,
    PeerPolicy,
    RequestLostError,
    feature_names,
    make_processors,
    make_rtc_config,
    observation_frame,
)
from scripts.lab.baselines.lerobot_settings import LeRobotSettings
from scripts.lab.baselines.virtual_time import LockstepTime, replaced_time


class PeerError(RobotRuntimeError):
    """The peer's thread caught an exception that is none of its own doing."""


class RunningPeer:
    """The engine as the loop of `BaseStrategy.run` and `send_next_action` sees it."""

    def __init__(
        self, engine: Any, interpolator: Any, policy: PeerPolicy, time: LockstepTime, checkpoint: Checkpoint
    ) -> None:
        self.policy = policy
        self.engine = engine
        self._interpolator, self._time, self._checkpoint = interpolator, time, checkpoint
        self._last: tuple[int, int] | None = None
        self._used: set[int] = set()

    def cycle(self, now_ns: int, observe: Callable[[], Observation]) -> Cycle:
        """One period: observation out, engine up to this instant, action in."""
        self._time.run_until(now_ns - 1)
        is_due, popped = self._interpolator.needs_new_action(), None
        if is_due:
            self.engine.notify_observation(observation_frame(observe(), self._checkpoint))
            self.policy.shown_ns = now_ns
        self._time.run_until(now_ns)
        self._raise_errors()
        if is_due:
            action = self.engine.get_action(None)
            if action is not None:
                self._interpolator.add(action[:-NUM_TAGS])
                popped = self._popped(action.double().numpy())
        target = self._interpolator.get()
        return Cycle(target=None if target is None else target.double().numpy(), popped=popped)

    def num_unused(self) -> int:
        """Answers of which no row was sent; the newest one may still be waiting and does not count."""
        answered = [k for k, request in enumerate(self.policy.requests) if request.rows is not None]
        return len(set(answered[:-1]) - self._used)

    def _raise_errors(self) -> None:
        for error in self._time.errors:
            if not isinstance(error, RequestLostError):
                raise PeerError(f"inside the peer's engine: {error!r}") from error

    def _popped(self, action: np.ndarray) -> PoppedRow:
        request, row = (int(tag) for tag in action[-NUM_TAGS:])
        jump = 0.0
        if self._last is not None and self._last[0] != request:
            old, last_row = self.policy.requests[self._last[0]].rows, self._last[1]
            assert old is not None
            planned = old[min(last_row + 1, len(old) - 1)]
            jump = float(np.abs(planned[:-1] - action[: len(planned) - 1]).max())
        self._last = request, row
        self._used.add(request)
        t_obs_ns = self.policy.requests[request].t_obs_ns
        return PoppedRow(request_id=request, row=row, t_obs_ns=t_obs_ns, jump=jump)


@contextmanager
def running_engine(
    checkpoint: Checkpoint,
    settings: LeRobotSettings,
    *,
    instruction: str,
    delay_ns: Callable[[int], int | None],
    lost_after_ns: int,
    seed: int,
) -> Iterator[RunningPeer]:
    """Within the block LeRobot's thread is alive, at time 0 and with an empty queue."""
    module = rtc_engine_module()
    from lerobot.policies.rtc import ActionInterpolator

    config = make_rtc_config(
        enabled=settings.rtc,
        schedule=settings.schedule.value,
        max_guidance_weight=settings.max_guidance_weight,
        execution_horizon=settings.execution_horizon,
    )
    with replaced_time(module) as time, _quiet():
        policy = PeerPolicy(
            checkpoint=checkpoint,
            rtc_config=config,
            time=time,
            delay_ns=delay_ns,
            lost_after_ns=lost_after_ns,
            seed=seed,
        )
        before, after = make_processors(policy)
        names = feature_names(checkpoint.model_config.state_dim)
        engine = module.RTCInferenceEngine(
            policy,
            before,
            after,
            SimpleNamespace(robot_type="simulated FR3", action_features={}),
            config,
            {STATE: {"dtype": "float32", "shape": (len(names),), "names": names}},
            instruction,
            1.0 / checkpoint.info.action_spec.dt_s,
            "cpu",
            rtc_queue_threshold=settings.queue_threshold,
        )
        engine.reset()
        engine.start()
        try:
            time.await_start()
            engine.resume()
            interpolator = ActionInterpolator(multiplier=settings.interpolation_multiplier)
            yield RunningPeer(engine, interpolator, policy, time, checkpoint)
        finally:
            engine.pause()  # so that it does not ask again on its way out
            time.close()
            engine.stop()


@contextmanager
def _quiet() -> Iterator[None]:
    """LeRobot warns whenever its clock and its queue disagree by a row; a record shows that better."""
    logger = logging.getLogger("lerobot")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
