"""Attacks a live server beside a well-behaved robot, and counts the robot's answers.

python -m scripts.attack.server --policy clear-seeing --json attack.json

The server and each attacker run in their own processes; an attacker has low priority on the processor, as it
represents another machine. A robot asks five times per second; its answers are counted for the same time
before, during and after each attack, and a new robot greets at the end. An attack is held off if the server
lives, the new robot is welcomed within ten seconds, and at least 80 % of the answers come. `busy_neighbour`
is no attack: it measures the cost of sharing the machine.
"""

import contextlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from msgspec import structs

from policies.load import load_policy
from robot_runtime.cli.options import Maybe, OutputFile, Several, Within
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import ServerUnavailableError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server.warming import zero_observation
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.events import PartReceived, ServerLost
from robot_runtime.wire.messages import Packet, Welcome
from scripts.attack import attacks, attacks_by_bytes
from scripts.attack.attacks_of_gateways import GATEWAY_ATTACKS
from scripts.attack.live_server import started_server
from scripts.harness import run_script, write_result

ATTACKS = attacks.ATTACKS | attacks_by_bytes.ATTACKS
KEPT = 0.8
_PERIOD_S = 0.2
_NEWCOMER_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Args:
    """Attack a server of a policy."""

    policy: str = "clear-seeing"
    """Policy to attack, one with cameras so that images can be part of it."""
    seconds: Annotated[float, Within(0.5, 3600)] = 5.0
    """Time before, during and after each attack [s]."""
    only: Several[Literal[*ATTACKS, *GATEWAY_ATTACKS]] = ()  # type: ignore[valid-type]
    """Names of attacks; all if not given, those on gateways included."""
    json: Maybe[OutputFile] = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of one attack."""

    attack: str
    before: int
    during: int
    after: int
    """Answers that the robot got."""
    losses: int
    """How often the robot lost the server."""
    newcomer_s: float | None
    """Time until another robot was welcomed; None if it was not."""
    rss_mb: int
    """Peak memory of the server or its gateway."""
    is_alive: bool

    @property
    def is_held_off(self) -> bool:
        return self.is_alive and self.newcomer_s is not None and self.during >= KEPT * self.before


class Robot:
    """Sends one request at a time at a steady pace, and counts its answers."""

    def __init__(self, client: PolicyClient, welcome: Welcome, pid: int) -> None:
        task = next(iter(welcome.info.tasks), "")
        self._client, self._pid = client, pid
        self._observation = zero_observation(welcome.info.schema, task)
        self._ids = itertools.count(1)
        self.rss_mb = self.losses = 0

    def answers(self, seconds: float) -> int:
        """Return how many complete answers come in a time."""
        end_s, next_s, num = time.monotonic() + seconds, time.monotonic(), 0
        while (now_s := time.monotonic()) < end_s:
            if now_s >= next_s:
                next_s += _PERIOD_S
                self._ask()
            self._client.wait_for_events(max(0.0, min(next_s, end_s) - time.monotonic()))
            for event in self._client.events():
                num += isinstance(event, PartReceived) and event.part.is_last
                self.losses += isinstance(event, ServerLost)
        return num

    def _ask(self) -> None:
        self.rss_mb = max(self.rss_mb, *map(_rss_mb, (self._pid, *_children(self._pid))))
        if self._client.welcome is None:
            return
        state = replace(self._observation.state, t_ns=time.monotonic_ns())
        self._client.submit(
            ChunkRequest(
                request_id=next(self._ids), epoch=0, seed=0, deadline_ns=NS_PER_S, inference_delay=0,
                observation=structs.replace(self._observation, state=state), prev_action_chunk=None,
                sampler=ConstantSchedule(),
            )
        )  # fmt: skip


@contextlib.contextmanager
def served(policy: str, gateway: str | None) -> Iterator[tuple[subprocess.Popen, str, str]]:
    """Start a server; yield its process, its address, and that of its gateway, or its own again."""
    with tempfile.TemporaryDirectory() as folder:
        log, names = (Path(folder) / name for name in ("log", "names.json"))
        names.write_text('{"convention": "si", "rotation": "columns"}')
        options = ["--policy", policy, "--torch-threads", "1", "--names", str(names)]
        if gateway is not None:
            options += [f"--{gateway}", "127.0.0.1:*" if gateway == "groot" else "127.0.0.1:0"]
        process, address = started_server(Path(folder), *options)
        started = (line for line in log.read_text().splitlines() if line.startswith(f"{gateway}: "))
        attacked = next(started, f" {address}").partition(" ")[2].removeprefix("ws://")
        try:
            yield process, address, attacked
        finally:
            began_s = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.wait(30.0)
        lines = [line for line in log.read_text().splitlines() if "ready:" not in line]
        print(f"ended {time.monotonic() - began_s:.2f} s after SIGTERM; its log:", *lines[:6], sep="\n    ")


def attacked(name: str, schema: Schema, args: Args) -> Outcome:
    """Run one attack on its own server."""
    gateway, _ = GATEWAY_ATTACKS.get(name, (None, None))
    with served(args.policy, gateway) as (process, address, attack_at):
        with PolicyClient(address, schema=schema, robot="good") as client:
            welcome = client.wait_until_ready(30.0)
            robot = Robot(client, welcome, process.pid)
            robot.answers(1.0)
            before = robot.answers(args.seconds)
            robot.losses = 0
            attacker = multiprocessing.get_context("spawn").Process(
                target=_attack, args=(name, attack_at, _packed(welcome)), daemon=True
            )
            attacker.start()
            robot.answers(2.0)  # it imports
            during = robot.answers(args.seconds)
            newcomer_s = _newcomer_s(address, welcome)
            os.kill(attacker.pid or 0, signal.SIGKILL)
            attacker.join()
            robot.answers(1.0)
            after = robot.answers(args.seconds)
        is_alive = process.poll() is None
        return Outcome(
            attack=name, before=before, during=during, after=after, losses=robot.losses,
            newcomer_s=newcomer_s, rss_mb=robot.rss_mb, is_alive=is_alive,
        )  # fmt: skip


def _packed(welcome: Welcome) -> list[bytes]:
    """Pack a welcome for another process, as pickle does not support its mappings."""
    return [bytes(frame) for frame in encode(Packet("", 0, welcome))]


def _attack(name: str, address: str, packed: list[bytes]) -> None:
    os.nice(19)
    welcome = decode(packed).message
    assert isinstance(welcome, Welcome)
    if name in GATEWAY_ATTACKS:
        GATEWAY_ATTACKS[name][1](address)
    else:
        ATTACKS[name](address, welcome)


def _newcomer_s(address: str, welcome: Welcome) -> float | None:
    began_s = time.monotonic()
    while (left_s := began_s + _NEWCOMER_S - time.monotonic()) > 0:
        with PolicyClient(address, schema=welcome.info.schema, robot="newcomer") as client:
            try:
                client.wait_until_ready(left_s)
                return round(time.monotonic() - began_s, 2)
            except ServerUnavailableError:
                time.sleep(0.2)  # all places are taken
    return None


def _children(pid: int) -> list[int]:
    """Gateways."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _rss_mb(pid: int) -> int:
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 2**20
    return 0


def main(args: Args) -> int:
    """Run all attacks; return 1 unless all are held off."""
    outcomes, schema = [], load_policy(args.policy).info.schema
    print("| attack | before | during | after | losses | newcomer [s] | RSS max [MB] | held off |")
    print("|---|---|---|---|---|---|---|---|")
    for name in args.only or (*ATTACKS, *GATEWAY_ATTACKS):
        o = attacked(name, schema, args)
        outcomes.append(o)
        cells = (o.attack, o.before, o.during, o.after, o.losses, o.newcomer_s, o.rss_mb)
        print("|", *(f"{cell} |" for cell in cells), "yes |" if o.is_held_off else "**no** |", flush=True)
    if args.json is not None:
        write_result(args.json, {"attacks": [asdict(o) for o in outcomes]})
    return 0 if all(o.is_held_off for o in outcomes) else 1


if __name__ == "__main__":
    run_script(Args, main)
