"""Floods against a live server with a well-behaved robot beside them: what the robot still gets.

python scripts/attack_server.py --seconds 8 --json outputs/attacks.json

Each attack is a process of its own that speaks ZeroMQ's protocol by hand, as a stranger and, where that makes
a difference, as a robot that has been welcomed. For each: answers a second before, during and after, servers
lost, and how far the server's memory grew. The exit code is 1 if the server ended, or the robot got less than
80 % of its answers during an attack.
"""

import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import tyro
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from live_server import LiveServer

from policies.scripted import FRANKA
from robot_runtime.wire.codec import encode
from robot_runtime.wire.messages import Hello, Packet

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
MIN_SHARE = 0.8


@dataclass(frozen=True, kw_only=True)
class Args:
    """Attack for so long with each."""

    seconds: float = 8.0
    only: tuple[str, ...] = ()
    """Attacks by name; none are all."""
    json: Path | None = None


def greeted(port: int, *, as_robot: bool = False) -> socket.socket:
    """A connection that has said what ZeroMQ wants to hear and, as a robot, what we do."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=10.0)
    connection.sendall(GREETING + READY)
    answered = b""
    while b"READY" not in answered:  # what comes before that is refused
        said = connection.recv(1000)
        if not said:
            raise ConnectionError
        answered += said
    if as_robot:
        (hello,) = encode(Packet("attacker", 1, Hello(robot="attacker", schema=FRANKA)))
        connection.sendall(b"\x02" + len(hello).to_bytes(8, "big") + hello)
        time.sleep(0.05)
    return connection


def endlessly(port: int, data: bytes, *, as_robot: bool = False) -> None:
    """The same bytes for ever, on a new connection whenever the last one ends."""
    while True:
        with suppress(OSError), greeted(port, as_robot=as_robot) as connection:
            Thread(target=drained, args=(connection,), daemon=True).start()
            while True:
                connection.sendall(data)


def drained(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(65536):
            pass


def commands(port: int) -> None:
    """ZMTP commands of two bytes, which libzmq answers by itself or drops."""
    endlessly(port, b"\x04\x01\x00" * 20_000)


def tiny_messages(port: int) -> None:
    """Messages without a byte."""
    endlessly(port, b"\x00\x00" * 20_000)


def endless_message(port: int) -> None:
    """One message of frames without a byte, never finished."""
    endlessly(port, b"\x01\x00" * 20_000)


def robot_commands(port: int) -> None:
    endlessly(port, b"\x04\x01\x00" * 20_000, as_robot=True)


def robot_tiny_messages(port: int) -> None:
    endlessly(port, b"\x00\x00" * 20_000, as_robot=True)


def robot_endless_message(port: int) -> None:
    endlessly(port, b"\x01\x00" * 20_000, as_robot=True)


def robot_unfinished_messages(port: int) -> None:
    unfinished_messages(port, as_robot=True)


def unfinished_messages(port: int, *, as_robot: bool = False) -> None:
    """40 messages of 62 MB that lack their last byte."""
    held = []
    frame = b"\x03" + (31 * 2**20).to_bytes(8, "big")
    while True:
        with suppress(OSError):
            connection = greeted(port, as_robot=as_robot)
            held.append(connection)
            connection.sendall(frame + bytes(31 * 2**20))
            connection.sendall(frame + bytes(31 * 2**20 - 1))
        held = held[-40:]


def silent_connections(port: int) -> None:
    """As many connections as go, which say nothing."""
    held = []
    while True:
        with suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", port), timeout=10.0))
        held = held[-700:]
        time.sleep(0.001)


def greetings(port: int) -> None:
    """Strangers that say garbage once and come again."""
    while True:
        with suppress(OSError), greeted(port) as connection:
            connection.sendall(b"\x00\x05hello" * 5)
            connection.recv(100)


ATTACKS: dict[str, Callable[[int], None]] = {
    attack.__name__: attack
    for attack in (
        commands, tiny_messages, endless_message, unfinished_messages, silent_connections, greetings,
        robot_commands, robot_tiny_messages, robot_endless_message, robot_unfinished_messages,
    )
}  # fmt: skip


def measured(name: str, seconds: float) -> dict[str, float]:
    """One attack on a fresh server."""
    with LiveServer() as server:
        before = server.ask_for(3.0)
        memory = server.memory()
        context = multiprocessing.get_context("spawn")
        attacker = context.Process(target=ATTACKS[name], args=(server.port,), daemon=True)
        attacker.start()
        peak, per_s, losses = memory, [], 0
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            during = server.ask_for(0.5)
            peak = max(peak, server.memory())
            per_s.append(during.per_s)
            losses += during.losses
        attacker.kill()
        attacker.join()
        after = server.ask_for(3.0)
        return {
            "before_per_s": before.per_s,
            "during_per_s": sum(per_s) / len(per_s),
            "after_per_s": after.per_s,
            "losses": losses + after.losses,
            "grew_mb": (peak - memory) / 1e6,
            "is_alive": server.is_alive,
            "log_lines": len(server.log().splitlines()),
        }


def main(args: Args) -> int:
    names = args.only or tuple(ATTACKS)
    figures = {name: measured(name, args.seconds) for name in names}
    table = Table("attack", *next(iter(figures.values())))
    for name, values in figures.items():
        table.add_row(name, *(f"{value:.3g}" for value in values.values()))
    Console(width=140).print(table)
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    is_well = all(
        f["is_alive"] and f["during_per_s"] >= MIN_SHARE * f["before_per_s"] for f in figures.values()
    )
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args)))
