"""Attacks a live server beside a well-behaved robot, and counts the robot's answers.

python -m scripts.attack.server --policy clear-seeing --json attack.json

The server and each attacker run in their own processes; an attacker has low priority on the processor, as it
represents another machine. A robot asks five times per second; its answers are counted for the same time
before, during and after each attack, and a new robot greets at the end. An attack is held off if the server
lives, the new robot is welcomed within ten seconds, and at least 80 % of the answers come. `busy_neighbour`
is no attack: it measures the cost of sharing the machine.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from policies.load import load_policy
from robot_runtime.cli.options import Maybe, OutputFile, Several, Within
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import ServerUnavailableError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.messages import Packet, Welcome
from scripts.attack.attacks import ATTACKS, GATEWAY_ATTACKS
from scripts.attack.live_server import Asker, resident_bytes, started_server
from scripts.harness import run_script, write_result

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
            robot, memory = Asker(client, period_s=_PERIOD_S), Memory(process.pid)
            robot.ask_for(1.0)
            before, lost = robot.ask_for(args.seconds), robot.losses
            attacker = multiprocessing.get_context("spawn").Process(
                target=_attack, args=(name, attack_at, _packed(welcome)), daemon=True
            )
            attacker.start()
            robot.ask_for(2.0)  # it imports
            during = robot.ask_for(args.seconds)
            newcomer_s = _newcomer_s(address, welcome)
            os.kill(attacker.pid or 0, signal.SIGKILL)
            attacker.join()
            robot.ask_for(1.0)
            after = robot.ask_for(args.seconds)
        is_alive = process.poll() is None
        return Outcome(
            attack=name, before=before, during=during, after=after, losses=robot.losses - lost,
            newcomer_s=newcomer_s, rss_mb=memory.stop(), is_alive=is_alive,
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


class Memory(threading.Thread):
    """Watches the peak memory of a server and its gateways."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._is_over, self._peak = pid, threading.Event(), 0
        self.start()

    def run(self) -> None:
        while not self._is_over.wait(_PERIOD_S):
            self._peak = max(self._peak, *map(resident_bytes, (self._pid, *_children(self._pid))))

    def stop(self) -> int:
        """Return the peak [MB]."""
        self._is_over.set()
        self.join()
        return self._peak // 2**20


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
