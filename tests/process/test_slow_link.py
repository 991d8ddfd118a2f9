"""Robots far away from their server, over real sockets."""

import time
from dataclasses import replace

import numpy as np
import pytest
from slow_link import slow_link
from toy import ToyPolicy, serving, toy_request, toy_schema

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.robot.client import PolicyClient
from robot_runtime.wire.events import PartReceived, RequestFailed, ServerLost

MS = 1_000_000


def answers(
    client: PolicyClient, num_requests: int, *, first_id: int = 1, pixels: np.ndarray | None = None
) -> int:
    """How many of so many requests, one after the other, are answered; a lost server fails the test."""
    num_answered = 0
    for request_id in range(first_id, first_id + num_requests):
        client.submit(toy_request(request_id, pixels=pixels, deadline_ns=60 * NS_PER_S))
        is_over = False
        while not is_over:
            assert client.wait_for_events(60.0)
            for event in client.events():
                assert not isinstance(event, ServerLost | RequestFailed), event
                if isinstance(event, PartReceived) and event.part.is_last:
                    is_over, num_answered = True, num_answered + 1
    return num_answered


@pytest.mark.real_time
@pytest.mark.long
def test_at_a_round_trip_of_400_ms_a_robot_connects_within_3_s_once_and_loses_nothing(start_server):
    server = start_server(heartbeat_ms=25)
    link = {"one_way_ns": 200 * MS, "jitter_ns": 20 * MS, "loss": 0.02}
    with slow_link(server.address, **link, seed=3) as far:
        started_s = time.monotonic()
        with PolicyClient(far.address, schema=toy_schema()) as client:
            client.wait_until_ready(20.0)
            took_s = time.monotonic() - started_s
            client.events()
            assert answers(client, 20) == 20
            assert far.num_connections == 1
    assert took_s < 3.0, f"{took_s:.1f} s"


@pytest.mark.long
def test_at_two_seconds_each_way_a_robot_connects_and_is_answered(start_server):
    server = start_server(heartbeat_ms=25)
    link = {"one_way_ns": 2 * NS_PER_S, "jitter_ns": 100 * MS, "loss": 0.05}
    with (
        slow_link(server.address, **link) as far,
        PolicyClient(far.address, schema=toy_schema()) as client,
    ):
        client.wait_until_ready(120.0)
        client.events()
        assert answers(client, 2) == 2
        assert far.num_connections == 1


class LookingPolicy(ToyPolicy):
    info = replace(ToyPolicy.info, schema=toy_schema((480, 640)))


@pytest.mark.long
def test_a_link_that_takes_four_seconds_for_a_picture_loses_no_server_meanwhile():
    pixels = np.zeros((480, 640, 3), np.uint8)
    with (
        serving(LookingPolicy()) as server,
        slow_link(server.address, bytes_per_s=pixels.nbytes // 4) as thin,
        PolicyClient(thin.address, schema=LookingPolicy.info.schema) as client,
    ):
        client.wait_until_ready(20.0)
        client.events()
        assert answers(client, 2, pixels=pixels) == 2
        assert thin.num_connections == 1
