"""A robot, a policy's server and a task, put together: `Session`, the loop that the user owns, and `run`.

with Session(robot, policy="tcp://gpu:5757", task="fold the towel") as session:   looked at, connected
    for tick in session:                                                          one control tick each
        ...
                                                    comes to rest, drivers stopped, whatever happened
"""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from robot_runtime.core.method.choose import Auto, Default, default_for
from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.clip import ClipTally
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import command_at_state
from robot_runtime.core.values.mismatches import check_task
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError, SchemaMismatchError
from robot_runtime.robot.check import check_robot
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.probe import choose_for, latency_for, latency_line
from robot_runtime.robot.runner import Runner
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.transport.address import server_and_name
from robot_runtime.wire.messages import Welcome


class Session(RunConfig):
    """One run of a robot, as a loop of the user's; takes the options of `RunConfig`.

    Entering it looks at the drivers, connects, and measures how late answers are. Each step of the iteration
    is one control tick: read, take answers, ask, correct, tick, write. What the loop's body does has to fit
    between two ticks. However the loop is left, by its end, `break` or an error, the robot comes to rest
    before the drivers are stopped; only an error of a driver stops them at once.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.policy, str):
            raise InvalidValueError(
                f"policy is a server's address, tcp://HOST:PORT, got {type(self.policy).__name__}; "
                "robot_runtime.serve(policy) is such a server"
            )
        self._opened = ExitStack()
        self._runner: Runner | None = None
        self._has_begun = False

    def __enter__(self) -> Self:
        """Look at the drivers, connect, and measure.

        DriverError: a driver is not what it has to be. ServerUnavailableError: nobody answers.
        SchemaMismatchError: robot and policy do not fit. InvalidValueError: the policy does not know the
        task, or not the method.
        """
        state = check_robot(self.robot, self.clock)
        observation = self.observation(state)
        address, name = server_and_name(self.policy)
        client = PolicyClient(
            address,
            schema=self.robot.schema(state, environment_state_dim=len(observation.environment_state)),
            robot=self.name,
            policy=name,
            jpeg_quality=self.jpeg_quality,
            keys=self.keys,
        )
        with ExitStack() as opened:
            opened.enter_context(client)
            welcome = client.wait_until_ready(self.connect_timeout_s)
            self.say(f"connected: policy {welcome.info.name!r} at {address}")
            _check_fit(welcome, observation)
            method, latency = self._measured(client, welcome, observation)
            self._runner = Runner(self, client, welcome, method=method, latency=latency)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._opened:
            self._end(kind, error, trace)

    def __iter__(self) -> Self:
        """Start the cameras and stand where the robot is; a session can be iterated over once."""
        if self._has_begun:
            raise RuntimeError("a session is one run: it has been iterated over already")
        self.runner.begin()
        self._has_begun = True
        return self

    def __next__(self) -> Tick:
        """One control tick; the robot stands when there is no more."""
        if (tick := self.runner.tick()) is None:
            raise StopIteration
        return tick

    def stop(self) -> None:
        """Bring the robot to rest; the iteration goes on until it stands."""
        self.runner.stop()

    @property
    def runner(self) -> Runner:
        """What runs the ticks; RuntimeError before the session is entered."""
        if self._runner is None:
            raise RuntimeError(
                "a session is entered first: with Session(...) as session: for tick in session: ..."
            )
        return self._runner

    @property
    def welcome(self) -> Welcome:
        """What the server said of its policy."""
        return self.runner.welcome

    @property
    def record(self) -> RunRecord:
        """What has happened so far; `RunRecord.fault` says afterwards why a run ended by itself."""
        return self.runner.record

    @property
    def clips(self) -> ClipTally:
        """What the limits have held back so far."""
        return self.runner.executor.clips

    def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_begun:
            self.runner.__exit__(kind, error, trace)

    def _measured(
        self, client: PolicyClient, welcome: Welcome, observation: Observation
    ) -> tuple[Method, LatencyEstimator | None]:
        """The method to run, and how late answers are if it matters to it."""
        method = self.method_or_choice
        if isinstance(method, Auto):
            choice, latency = choose_for(method, client, welcome, observation, self.clock, say=self.say)
            self.say(str(choice))
            return choice.method, latency
        if isinstance(method, Default):
            choice = default_for(method, welcome.info.capabilities)
            self.say(str(choice))
            method = choice.method
        measured = latency_for(method, client, welcome, observation, self.clock, say=self.say)
        if measured is not None:
            self.say(latency_line(measured, welcome.info.action_spec.dt_ns))
        return method, measured


def _run[**P](session: Callable[P, Session]) -> Callable[P, RunRecord]:
    """A function of the options of a session."""

    def run(*args: P.args, **options: P.kwargs) -> RunRecord:
        with session(*args, **options) as running:
            for _ in running:
                pass
        return running.record

    run.__doc__, run.__module__, run.__qualname__ = _RUN, __name__, "run"
    signature = inspect.signature(session).replace(return_annotation=RunRecord)
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


_RUN = """Run a robot until `duration_s` is over, or it cannot go on; takes what `Session` takes.

Returns what happened: `RunRecord.fault` says why a run ended by itself or the robot never moved.
"""
run = _run(Session)


def _check_fit(welcome: Welcome, observation: Observation) -> None:
    """Whether the policy knows the task, and the state has what its commands count from."""
    check_task(observation.task, policy=welcome.info.name, tasks=welcome.info.tasks)
    try:
        command_at_state(welcome.info.action_spec, observation.state)
    except ValueError as error:
        raise SchemaMismatchError(
            f"policy {welcome.info.name!r} cannot drive this robot: {error} (ArmState(X_BE=...))"
        ) from error
