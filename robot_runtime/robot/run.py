"""Runs a robot with a policy server and a task: `Session`, a loop that the user owns, and `run`.

with Session(robot, policy="tcp://gpu:5757", task="fold the towel") as session:   checked, connected
    for tick in session:                                                          one control tick each
        ...
                                                    comes to rest, drivers stopped, in any case
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from robot_runtime.core.method.choose import Auto, Default, default_for
from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.table import Method
from robot_runtime.core.orders import Order
from robot_runtime.core.plan.clip import ClipTally
from robot_runtime.core.plan.part_latency import lead_ns
from robot_runtime.core.safety import Cause
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import command_at_state
from robot_runtime.core.values.command import PartCommand
from robot_runtime.core.values.mismatches import check_task
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import DriverError, InvalidValueError, SchemaMismatchError
from robot_runtime.robot.check import BY_HAND, check_robot, outside_limits
from robot_runtime.robot.client import NoPolicy, PolicyClient, method_without_policy
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.lease import Lease
from robot_runtime.robot.orderly_end import OrderlyEnd
from robot_runtime.robot.probe import choose_for, latency_for, latency_line
from robot_runtime.robot.runner import Runner
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.transport.address import server_and_name
from robot_runtime.wire.messages import Welcome


class Session(RunConfig):
    """One run of a robot, as a loop that the user owns; takes the options of `RunConfig`.

    Entering it checks the drivers, connects, and measures how late answers are. Each step of the iteration is
    one control tick: read, take answers, ask, correct, tick, write. The loop's body has to fit between two
    ticks. However the loop is left, by its end, `break`, an error, a signal (SIGINT, SIGTERM, SIGHUP,
    SIGQUIT, SIGTSTP) or the end of the program, the robot comes to rest before the drivers are stopped; only
    an error of a driver and a second signal stop them at once. The program gets the signal afterwards, see
    `orderly_end`.
    """

    _runner: Runner | None = None
    _first_task = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.policy, str | None):
            raise InvalidValueError(
                f"policy is a server's address, tcp://HOST:PORT, got {type(self.policy).__name__}; "
                "robot_runtime.serve(policy) is such a server"
            )
        self._opened = ExitStack()
        self._has_begun = False
        self._orderly: OrderlyEnd | None = None

    def __enter__(self) -> Self:
        """Check the drivers, connect, and measure the latency.

        DriverError: a driver breaks its contract. ServerUnavailableError: no server answers.
        SchemaMismatchError: robot and policy do not fit. InvalidValueError: the policy does not know the
        task, or not the method. RobotBusyError: something else on this machine drives the robot.
        """
        with ExitStack() as opened:
            for device in (self.arm, self.hold_to_run, self.teleop):
                if device is not None:
                    opened.callback(device.close)
            state = check_robot(self.robot, self.clock)
            if out := [
                each for sentences in outside_limits(self.robot.limits, state).values() for each in sentences
            ]:
                raise DriverError("\n  ".join(["this robot cannot be run from where it is:", *out, BY_HAND]))
            opened.enter_context(Lease(self.robot))
            self._runner = self._connected(state, opened)
            self._opened = opened.pop_all()
        return self

    def _connected(self, state: RobotState, opened: ExitStack) -> Runner:
        observation = self.observation(state)
        if self.policy is None:
            return self._without_policy(state, opened)
        address, name = server_and_name(self.policy)
        client = PolicyClient(
            address,
            schema=self.robot.schema(state, environment_state_dim=len(observation.environment_state)),
            robot=self.name,
            policy=name,
            jpeg_quality=self.jpeg_quality,
            keys=self.keys,
            clock=self.clock,
        )
        opened.enter_context(client)
        welcome = client.wait_until_ready(self.connect_timeout_s)
        self.say(f"connected: policy {welcome.info.name!r} at {address}")
        _check_fit(welcome, observation)
        if not observation.task and not welcome.info.tasks:
            self.say(
                f"no task is given and policy {welcome.info.name!r} declares none: its text is "
                "empty (--task TEXT, for a policy that reads one)"
            )
        method, latency = self._measured(client, welcome, observation)
        runner = Runner(self, client, welcome, method=method, latency=latency)
        opened.callback(runner.close)
        return runner

    def _without_policy(self, state: RobotState, opened: ExitStack) -> Runner:
        """Make the runner of a run in which a person drives all parts."""
        client = NoPolicy(self.robot.schema(state))
        runner = Runner(self, client, client.wait_until_ready(), method=method_without_policy())
        opened.callback(runner.close)
        self.say("no policy is asked: a person drives")
        return runner

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as last:
            if self._orderly is not None:
                last.callback(self._orderly.close)
            with self._opened:
                self._end(kind, error, trace)

    def __iter__(self) -> Self:
        """Start the cameras and hold where the robot is; a session can be iterated over once."""
        if self._has_begun:
            raise RuntimeError("a session is one run: it has been iterated over already")
        orderly = OrderlyEnd(
            stop_drivers=self.runner.cut_off,
            end=lambda: self.__exit__(None, None, None),
            period_s=1.0 / self.control_hz,
        )
        self._orderly = orderly
        orderly.open()
        self.runner.begin(should_stop=orderly.is_due, on_rest=orderly.at_rest)
        self._has_begun = True
        return self

    def __next__(self) -> Tick:
        """Run one control tick; once there are no more, the robot is at rest."""
        assert self._orderly is not None
        self._orderly.beat()
        if (tick := self.runner.tick()) is None:
            self._orderly.at_rest()
            raise StopIteration
        return tick

    def stop(self, cause: Cause = Cause.STOP_REQUESTED) -> None:
        """Bring the robot to rest; the iteration continues until it is at rest. cause: one of
        `safety.ENDS`."""
        self.runner.stop(cause)

    @property
    def is_armed(self) -> bool:
        """Whether the robot may move."""
        return self.runner.executor.is_armed

    @property
    def why_not_armed(self) -> str:
        """What is missing before it can be armed; empty: nothing, or it is armed."""
        return self.runner.executor.why_not_armed(self.clock.now_ns())

    def arm_now(self) -> None:
        """Let the robot move, from the loop's body. NotArmedError: something is missing; the message names
        it."""
        self.runner.operator.arm(self.clock.now_ns(), "Session.arm_now()")

    def reset(self) -> None:
        """Leave STOP, from the loop's body: hold where the robot is, to be armed again if the run needs
        arming.

        InvalidValueError: it cannot start from the measured state.
        """
        try:
            self.runner.reset()
        except ValueError as error:
            raise InvalidValueError(str(error)) from error

    def post(self, order: Order, by: str) -> None:
        """Send an operator command to the run, from any thread; never waits. The next tick executes it.

        by: the sender, in words, for the log. InvalidValueError: it is no order. RuntimeError: there is no
        run yet. Refusals and their reasons are in `record.orders` and in the log.
        """
        self.runner.orders.post(order, by)

    def lead(self, wishes: Mapping[str, PartCommand]) -> None:
        """Command the parts that a person has taken over, in the next tick; from the loop's body, in each
        step: parts without a command come to rest.

        wishes: of the kind that each part takes, as in `Tick.command`. InvalidValueError: of another kind.
        """
        self.runner.executor.lead(wishes, self.clock.now_ns())

    @property
    def task(self) -> str:
        """What the policy is asked for now; `post(SetTask(...), by=...)` changes it."""
        return self._first_task if self._runner is None else self._runner.task.text

    @task.setter
    def task(self, text: str) -> None:
        self._first_task = text  # by the dataclass, once: its fields are frozen

    @property
    def runner(self) -> Runner:
        """The runner of the ticks; RuntimeError before the session is entered."""
        if self._runner is None:
            raise RuntimeError(
                "a session is entered first: with Session(...) as session: for tick in session: ..."
            )
        return self._runner

    @property
    def welcome(self) -> Welcome:
        """What the server declared about its policy."""
        return self.runner.welcome

    @property
    def record(self) -> RunRecord:
        """The record so far; `RunRecord.fault` states afterwards why a run ended by itself."""
        return self.runner.record

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal or the end of the program has ended it."""
        return self._orderly is not None and self._orderly.is_due()

    @property
    def clips(self) -> ClipTally:
        """What the limits have clipped so far."""
        return self.runner.executor.clips

    def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_begun:
            self.runner.__exit__(kind, error, trace)

    def _measured(
        self, client: PolicyClient, welcome: Welcome, observation: Observation
    ) -> tuple[Method, LatencyEstimator | None]:
        """Return the method to run, and the latency of answers if the method depends on it."""
        method = self.method_or_choice
        lead = lead_ns(self.robot.latency_ns, welcome.info.action_spec)
        if isinstance(method, Auto):
            choice, latency = choose_for(
                method, client, welcome, observation, self.clock, say=self.say, to_motion_ns=lead
            )
            self.say(str(choice))
            return choice.method, latency
        if isinstance(method, Default):
            choice = default_for(method, welcome.info.capabilities)
            self.say(str(choice))
            method = choice.method
        measured = latency_for(method, client, welcome, observation, self.clock, say=self.say)
        if measured is not None:
            self.say(latency_line(measured, welcome.info.action_spec.dt_ns, lead))
        return method, measured


def _run[**P](session: Callable[P, Session]) -> Callable[P, RunRecord]:
    """Make a function that takes the options of a session."""

    def run(*args: P.args, **options: P.kwargs) -> RunRecord:
        with session(*args, **options) as running:
            for _ in running:
                pass
        return running.record

    run.__doc__, run.__module__, run.__qualname__ = _RUN, __name__, "run"
    signature = inspect.signature(session).replace(return_annotation=RunRecord)
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


_RUN = """Run a robot until `duration_s` is over, or it cannot continue; takes what `Session` takes.

Returns the record: `RunRecord.fault` states why a run ended by itself or the robot never moved.
"""
run = _run(Session)


def _check_fit(welcome: Welcome, observation: Observation) -> None:
    """Check that the policy knows the task, and that the state has the anchors of its commands."""
    check_task(observation.task, policy=welcome.info.name, tasks=welcome.info.tasks)
    try:
        command_at_state(welcome.info.action_spec, observation.state)
    except ValueError as error:
        raise SchemaMismatchError(
            f"policy {welcome.info.name!r} cannot drive this robot: {error} (ArmState(X_BE=...))"
        ) from error
