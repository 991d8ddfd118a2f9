"""Checks of the server and its policy: whether it is reachable, fits the robot, and answers in time."""

from collections.abc import Iterator
from typing import Any

from robot_runtime.clock import MonotonicClock
from robot_runtime.commands.doctor.finding import Finding, doubtful, fine, wrong
from robot_runtime.core.method.choose import Default, default_for
from robot_runtime.core.method.latency import COMMITMENT_QUANTILE
from robot_runtime.core.values.action import command_at_state
from robot_runtime.core.values.mismatches import unmoved_fields
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import RobotRuntimeError, SchemaMismatchError, ServerUnavailableError
from robot_runtime.robot.cameras import needed_cameras
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.probe import latency_for, latency_line
from robot_runtime.robot.robot import Robot
from robot_runtime.transport.address import server_and_name
from robot_runtime.wire.messages import Welcome


def look_at_server(
    robot: Robot, policy: str, options: dict[str, Any], *, timeout_s: float = 5.0
) -> Iterator[Finding]:
    """Check the server and its policy.

    policy: the server's address. options: of the session: name, keys.
    """
    try:
        state = robot.read()
        schema = robot.schema(state)
    except Exception as error:
        yield wrong("policy", f"not asked: the robot cannot be read: {error}")
        return
    address, name = server_and_name(policy)
    with PolicyClient(
        address,
        schema=schema,
        robot=f"{options.get('name', 'robot')} (doctor)",
        policy=name,
        keys=options.get("keys"),
    ) as client:
        try:
            welcome = client.wait_until_ready(timeout_s)
        except SchemaMismatchError as error:
            yield wrong("policy", str(error), "names and sizes of parts and cameras are in the robot's file")
            return
        except ServerUnavailableError as error:
            start = f"on the GPU machine: robot-runtime serve --policy NAME --address {address}"
            yield wrong("server", str(error), "" if "refused:" in str(error) else start)
            return
        except RobotRuntimeError as error:
            yield wrong("server", str(error))
            return
        info = welcome.info
        yield fine(
            "server",
            f"{address} serves {info.name!r}, chunks of {info.action_spec.horizon} rows of "
            f"{info.action_spec.dt_ns / 1e6:g} ms",
        )
        yield from _demands(robot, welcome, state)
        yield _latency(client, welcome, Observation(state=state, task=next(iter(info.tasks), "")))


def _demands(robot: Robot, welcome: Welcome, state: Any) -> Iterator[Finding]:
    """Check the parts and cameras that the policy needs, by name."""
    info = welcome.info
    yield fine("policy moves", ", ".join(info.action_spec.names))
    try:
        command_at_state(info.action_spec, state)
        if robot.limits is not None:
            robot.limits.check(info.action_spec, resolves_hand=robot.whole_body is not None)
    except (RobotRuntimeError, ValueError) as error:
        yield wrong("policy moves", str(error), "limits and drivers are in the robot's file")
    still = [f.part for f in unmoved_fields(robot.schema(state).action_fields, info.action_spec.fields)]
    if still:
        yield doubtful("policy moves", f"not {', '.join(dict.fromkeys(still))}: held still")
    wanted = info.schema.cameras
    try:
        needed_cameras(robot.cameras, wanted)
    except RobotRuntimeError as error:
        yield wrong("policy looks at", str(error), "size, fit and name of a camera are in the robot's file")
        return
    sees = ", ".join(f"{name} {h} x {w}" for name, (h, w) in wanted.items()) or "no camera"
    yield fine("policy looks at", sees)
    if info.tasks:
        yield fine("policy knows the tasks", "; ".join(info.tasks))


def _latency(client: PolicyClient, welcome: Welcome, observation: Observation) -> Finding:
    spec, capabilities = welcome.info.action_spec, welcome.info.capabilities
    choice = default_for(Default(), capabilities)
    method = choice.method
    try:
        latency = latency_for(method, client, welcome, observation, MonotonicClock())
    except RobotRuntimeError as error:
        return wrong("answers", str(error))
    if latency is None:
        return fine("answers", f"not measured: {choice}")
    slow_ns, budget_ns = latency.latency_ns() or 0, spec.horizon * spec.dt_ns // 2
    found = f"{latency_line(latency, spec.dt_ns)}; a chunk lasts {2 * budget_ns / 1e6:g} ms"
    median_ns = latency.latency_ns(COMMITMENT_QUANTILE) or 0
    if slow_ns <= budget_ns:
        return fine("answers", found)
    verdict = doubtful if median_ns <= budget_ns else wrong
    return verdict(
        "answers", found, "answers should take less than half a chunk: a faster GPU, or fewer steps"
    )
