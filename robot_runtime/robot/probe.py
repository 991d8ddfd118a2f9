"""Measures how late a server's answers are, with the robot stationary, before it starts."""

from collections.abc import Callable

import numpy as np
from msgspec import structs

from robot_runtime.clock import Clock
from robot_runtime.core.method.capabilities import Capabilities, resolve_method
from robot_runtime.core.method.choose import Auto, Choice, choose_method
from robot_runtime.core.method.latency import (
    COMMITMENT_QUANTILE,
    LATENCY_QUANTILE,
    LatencyEstimator,
    rows_past,
)
from robot_runtime.core.method.request_parts import Synchronous
from robot_runtime.core.method.sampler_parts import PREFIXLESS, SamplerPart
from robot_runtime.core.method.table import Method
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Image, Observation
from robot_runtime.errors import InvalidValueError, ServerUnavailableError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.wire.messages import Welcome

NUM_REQUESTS = 8
"""The first pays for cold caches and is not counted."""
DEADLINE_NS = 5 * NS_PER_S
"""Deadline of each request."""
WARM_NS = 600 * NS_PER_S
"""How long a server may take to warm up for the requests [ns]."""
Say = Callable[[str], None]
"""Receives a line before a long step."""


def _nothing(line: str) -> None:
    pass


def choose_for(
    auto: Auto,
    client: PolicyClient,
    welcome: Welcome,
    observation: Observation,
    clock: Clock,
    *,
    say: Say = _nothing,
    to_motion_ns: int = 0,
) -> tuple[Choice, LatencyEstimator]:
    """Measure the server and pick the method; ServerUnavailableError if it does not answer.

    observation: of the robot at rest; missing images are filled with noise of the size the policy needs.
    to_motion_ns: how long it then takes from a command to the motion [ns].
    Returns the latency too, for the executor that runs the method.
    """
    sampler = _probe_sampler(welcome.info.capabilities)
    latency = measure_latency(client, welcome, observation, sampler=sampler, clock=clock, say=say)
    choice = choose_method(
        welcome.info.capabilities,
        latency_ns=to_motion_ns + _known_ns(latency),
        dt_ns=welcome.info.action_spec.dt_ns,
        horizon=welcome.info.action_spec.horizon,
        execution_horizon=auto.execution_horizon,
    )
    return choice, latency


def latency_for(
    method: Method,
    client: PolicyClient,
    welcome: Welcome,
    observation: Observation,
    clock: Clock,
    *,
    say: Say = _nothing,
) -> LatencyEstimator | None:
    """Measure the server as this method will ask it; None, without a request, for a synchronous method.

    InvalidValueError: the policy does not support the method. ServerUnavailableError: it does not answer.
    """
    method = resolve_method(method, welcome.info.capabilities, policy=welcome.info.name)
    if isinstance(method.request, Synchronous):
        return None
    return measure_latency(client, welcome, observation, sampler=method.sampler, clock=clock, say=say)


def latency_line(latency: LatencyEstimator, dt_ns: int, to_motion_ns: int = 0) -> str:
    """Describe the measured latency for the operator; to_motion_ns: as in `choose_for`."""
    median_ns, slow_ns = latency.latency_ns(COMMITMENT_QUANTILE), latency.latency_ns()
    assert median_ns is not None
    assert slow_ns is not None
    return (
        f"answers take {median_ns / 1e6:.0f} ms, {slow_ns / 1e6:.0f} at the {LATENCY_QUANTILE:g} quantile, "
        f"{_then(to_motion_ns)}d = {rows_past(median_ns + to_motion_ns, dt_ns)} rows "
        f"({NUM_REQUESTS} requests before the start)"
    )


def _then(to_motion_ns: int) -> str:
    return f"and the robot {to_motion_ns / 1e6:.0f} ms to move, " if to_motion_ns else ""


def measure_latency(
    client: PolicyClient,
    welcome: Welcome,
    observation: Observation,
    *,
    sampler: SamplerPart,
    clock: Clock,
    say: Say = _nothing,
) -> LatencyEstimator:
    """Measure a few latencies, from request to first rows, without the first of the connection."""
    say(f"measuring the latency: {NUM_REQUESTS} requests, up to {DEADLINE_NS / NS_PER_S:g} s each")
    latency, rng = LatencyEstimator(), np.random.default_rng(0)
    epoch = client.new_epochs()  # so that a late answer belongs to no request
    images = {
        name: Image(t_ns=clock.now_ns(), pixels=rng.integers(0, 256, (*size, 3), dtype=np.uint8))
        for name, size in welcome.info.schema.cameras.items()
    }
    seen = Observation(
        state=observation.state,
        images=images | dict(observation.images),
        environment_state=observation.environment_state,
        task=observation.task,
    )
    plan = np.zeros((welcome.info.action_spec.horizon, welcome.info.action_spec.dim))
    is_prefixless = isinstance(sampler, PREFIXLESS)

    def request(request_id: int, epoch: int) -> ChunkRequest:
        return ChunkRequest(
            request_id=request_id,
            epoch=epoch,
            observation=_looking_back(seen, welcome.info, clock.now_ns()),
            prev_action_chunk=None if is_prefixless else plan,
            inference_delay=0 if is_prefixless else 1,
            sampler=sampler,
            seed=request_id,
            deadline_ns=DEADLINE_NS,
        )

    _wait_until_warm(client, lambda: request(0, client.new_epochs()), say=say, clock=clock)
    for request_id in range(NUM_REQUESTS):
        asked = request(request_id, epoch)
        asked_ns = clock.now_ns()
        arrived_ns = _first_rows_ns(client, asked, plan)
        latency.add(arrived_ns - asked_ns)
    return latency


def _wait_until_warm(
    client: PolicyClient, request: Callable[[], ChunkRequest], *, say: Say, clock: Clock
) -> None:
    """Wait until the server answers requests of that kind, if it has yet to warm up for them.

    A server warms up first what a client waits for, so one request is sent, and again after its deadline.
    """
    given_up_ns, has_reported = clock.now_ns() + WARM_NS, False
    asked = request()
    name = type(asked.sampler).__name__
    while (ready := client.readiness) is not None and name not in ready.samplers:
        if not has_reported:
            say(f"the server has yet to warm up {name}: waiting for it, up to {WARM_NS / NS_PER_S:g} s")
            has_reported = True
        try:
            for _ in client.parts(asked):
                pass
            return
        except ServerUnavailableError:
            if client.welcome is None or clock.now_ns() > given_up_ns:
                raise
        asked = request()


def _looking_back(seen: Observation, info: PolicyInfo, now_ns: int) -> Observation:
    """Make as many frames as the policy uses, with new images, so that all are sent."""
    if info.n_obs_steps == 1:
        return seen
    frames = []
    for t_ns in range(now_ns, now_ns + info.n_obs_steps):
        images = {name: Image(t_ns=t_ns, pixels=image.pixels) for name, image in seen.images.items()}
        frames.append(structs.replace(seen, images=images))
    return structs.replace(frames[-1], history=tuple(frames[:-1]))


def _known_ns(latency: LatencyEstimator) -> int:
    measured = latency.latency_ns()
    assert measured is not None
    return measured


def _first_rows_ns(client: PolicyClient, request: ChunkRequest, plan: np.ndarray) -> int:
    """Return when the first rows came; the whole answer becomes the plan of the next request."""
    first_ns: int | None = None
    try:
        for event in client.parts(request):
            first_ns = event.arrived_ns if first_ns is None else first_ns
            plan[event.part.first_row : event.part.first_row + len(event.part.rows)] = event.part.rows
    except (ServerUnavailableError, InvalidValueError) as error:
        raise ServerUnavailableError(f"measuring the latency before the start failed: {error}") from error
    assert first_ns is not None
    return first_ns


def _probe_sampler(capabilities: Capabilities) -> SamplerPart:
    """Return the sampler of the method for a latency of two rows: its cost is what counts."""
    return choose_method(capabilities, latency_ns=1, dt_ns=1, horizon=64).method.sampler
