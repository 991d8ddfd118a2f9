import time
from functools import partial
from threading import Thread

from toy import ToyPolicy, toy_request, toy_schema

from robot_runtime.client import PolicyClient
from robot_runtime.server.server import PolicyServer
from robot_runtime.wire.rehearsal import rehearse

TIMEOUT_S = 20.0


def test_both_sides_rehearse_before_the_requests_of_a_robot_that_keeps_its_pace(monkeypatch):
    rehearsed: dict[str, int] = {}  # at how many requests each side first did
    request_id = 0

    def rehearse_on(side: str) -> None:
        rehearsed.setdefault(side, request_id)
        rehearse()

    for side, module in (("robot", "robot_runtime.client"), ("server", "robot_runtime.server.server")):
        monkeypatch.setattr(f"{module}.rehearse", partial(rehearse_on, side))
    with PolicyServer(ToyPolicy(), "tcp://127.0.0.1:*", heartbeat_ns=10**9) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            with PolicyClient(server.address, schema=toy_schema()) as client:
                client.wait_until_ready(TIMEOUT_S)
                deadline_s = time.monotonic() + TIMEOUT_S
                while {*rehearsed} != {"robot", "server"} and time.monotonic() < deadline_s:
                    request_id += 1
                    client.submit(toy_request(request_id))
                    time.sleep(0.05)
        finally:
            server.stop()
            thread.join()
    assert {*rehearsed} == {"robot", "server"}
    assert min(rehearsed.values()) >= 2  # there is no pace before
