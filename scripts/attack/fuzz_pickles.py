"""Damages messages of other projects' clients, and reads them with the gateways' readers.

python -m scripts.attack.fuzz_pickles --pickles 100000 --messages 100000 --json fuzz_pickles.json

Starts from messages of stock clients (LeRobot's pickles, openpi's and GR00T's msgpack) and from known
attacks, and changes bytes or instructions. Each is read as its gateway reads it, up to the observation that
the policy would see, in a process of bounded memory. A reader may refuse a message only with a ValueError:
another exception, one of Python's audit events for an import, a call or a file, a crash, or more than half a
second is a failure and makes the exit code 1. Case i of a seed is always the same: --first i --pickles 1
repeats it.
"""

import contextlib
import json
import multiprocessing
import pickle
import pickletools
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from robot_runtime.cli.options import AnyCount, Maybe, OutputFile, Seed, Steps
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.server.gateways import groot, lerobot, openpi
from robot_runtime.server.gateways.key_map import KeyMap
from robot_runtime.server.gateways.lerobot_messages import HELPERS, read_instructions, read_observation
from scripts.harness import run_script, write_result
from tests.server.test_pickle_format import HOSTILE

MAX_S = 0.5
MAX_DATA = 1024**3
SPEC = ActionSpec(fields=(JointPosition(2), GripperWidth()), horizon=4, dt_ns=50_000_000)
POLICY = PolicyInfo(name="fuzzed", action_spec=SPEC, schema=Schema.of(SPEC, cameras={"wrist": (8, 8)}))
SI = KeyMap(convention="si")
NAMES = ["joint_0.pos", "joint_1.pos", "gripper.pos"]
LEROBOT = SI.over(lerobot.names_of(POLICY.schema, NAMES, {"wrist": "wrist"}))
OPENPI, GROOT = SI.over(KeyMap.of(POLICY.schema)), SI.over(groot.names_of(POLICY.schema))


@dataclass(frozen=True, kw_only=True)
class Args:
    """Fuzz the gateways' readers with damaged messages."""

    pickles: Steps = 100_000
    messages: Steps = 100_000
    """Number of messages of openpi and GR00T, half each."""
    first: AnyCount = 0
    """Number of the first case."""
    seed: Seed = 0
    json: Maybe[OutputFile] = None


# ---- what stock clients send ---------------------------------------------------------------------------


def stock_pickles() -> list[bytes]:
    """Return pickles as LeRobot's client makes them, with its own classes."""
    from lerobot.async_inference.helpers import RemotePolicyConfig, TimedObservation

    picture = np.arange(8 * 12 * 3, dtype=np.uint8).reshape(8, 12, 3)
    raw = {NAMES[0]: 0.5, NAMES[1]: np.float32(-0.25), NAMES[2]: 0.04, "wrist": picture, "task": "pick it up"}
    state = {"dtype": "float32", "shape": (3,), "names": NAMES}
    features = {
        "observation.state": state,
        "observation.images.wrist": {"dtype": "image", "shape": (8, 12, 3)},
    }
    values: list[Any] = [
        TimedObservation(timestamp=1.0, timestep=3, observation=raw, must_go=True),
        TimedObservation(timestamp=1.0, timestep=3, observation=raw | {"wrist": picture[::2, ::2]}),
        TimedObservation(timestamp=1.0, timestep=3, observation=raw | {"other": np.asfortranarray(picture)}),
        RemotePolicyConfig("act", "user/model", features, 50),
        RemotePolicyConfig(
            "act", "x", features, 50, rename_map={"observation.images.a": "observation.images.b"}
        ),
    ]
    return [pickle.dumps(value, protocol) for value in values for protocol in (4, 5)]


def stock_messages() -> dict[str, list[bytes]]:
    """Return messages as openpi's and GR00T's clients pack them."""
    q, picture = np.array([0.5, -0.25], np.float32), np.full((8, 8, 3), 9, np.uint8)
    droid = {
        "observation/joint_position": q,
        "observation/gripper_position": np.array([0.04]),
        "observation/wrist": picture,
        "prompt": "pick it up",
        "step": np.float64(3),
    }
    seen = {
        "video": {"wrist": picture[None, None]},
        "state": {"joint_position": q[None, None], "gripper_position": np.full((1, 1, 1), 0.04)},
        "language": {"task": [["pick it up"]]},
    }
    request = {"endpoint": "get_action", "api_token": "x", "data": {"observation": seen, "options": None}}
    return {
        "openpi": [openpi.pack(droid), openpi.pack({"observation": {"state": q}, "prompt": "x"})],
        "groot": [groot.pack(request), groot.pack({"endpoint": "ping"})],
    }


# ---- how each gateway reads ------------------------------------------------------------------------------


def read_pickled(data: bytes) -> None:
    """Read both messages that LeRobot's gateway takes."""
    try:
        instructions = read_instructions(data)
    except ValueError:
        LEROBOT.observation(read_observation(data)[2], now_ns=0, sizes=POLICY.schema.cameras)
    else:
        state_names, cameras = lerobot.declared_names_given(instructions)
        names = SI.over(lerobot.names_of(POLICY.schema, state_names, cameras))
        lerobot.order_of_columns(POLICY, names, state_names)


def read_openpi(data: bytes) -> None:
    OPENPI.observation(openpi.unpack(data), now_ns=0, sizes=POLICY.schema.cameras)


def read_groot(data: bytes) -> None:
    seen, _ = groot.observation_of(bytes(groot.request_of(data).data))
    GROOT.observation(seen, now_ns=0, sizes=POLICY.schema.cameras)


# ---- damage ----------------------------------------------------------------------------------------------

_NUMBERS = [0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]


def changed_bytes(data: bytes, corpus: list[bytes], rng: random.Random) -> bytes:
    """Return the data with one change of bytes."""
    out, at = bytearray(data), rng.randrange(len(data))
    match rng.randrange(7):
        case 0:
            out[at] ^= 1 << rng.randrange(8)
        case 1:
            out[at] = rng.randrange(256)
        case 2:
            del out[at : at + rng.randrange(1, 9)]
        case 3:
            out[at:at] = rng.randbytes(rng.randrange(1, 9))
        case 4:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice(_NUMBERS) % 256**size
            out[at : at + size] = number.to_bytes(size, rng.choice(("little", "big")))
        case 5:
            other = rng.choice(corpus)
            start = rng.randrange(len(other))
            out[at:at] = other[start : start + rng.randrange(1, 200)]
        case 6:
            del out[at:]
    return bytes(out)


def instructions_of(data: bytes) -> list[bytes]:
    """Split a pickle into its instructions."""
    at = []
    try:
        for _, _, position in pickletools.genops(BytesIO(data)):
            at.append(position or 0)
    except Exception:
        at.append(len(data))  # an attack that no reader follows further
    pieces = [data[a:b] for a, b in zip(at, [*at[1:], len(data)], strict=True)]
    return [piece for piece in pieces if piece[:1] != b"\x95"]  # only a frame's length is read


def changed_instructions(pieces: list[bytes], others: list[list[bytes]], rng: random.Random) -> list[bytes]:
    """Return the instructions with one change."""
    out, at = list(pieces), rng.randrange(max(1, len(pieces)))
    match rng.randrange(5):
        case 0:
            del out[at : at + rng.randrange(1, 4)]
        case 1:
            out[at:at] = out[at : at + rng.randrange(1, 6)] * rng.choice((1, 2, 50))
        case 2:
            other = rng.choice(others)
            start = rng.randrange(max(1, len(other)))
            out[at : at + rng.randrange(3)] = other[start : start + rng.randrange(1, 12)]
        case 3:
            out[at:at] = [bytes([rng.choice(b"()]}t\x85\x86\x87NRbsuae\x81\x93\x9420Q")])]
        case 4:
            at_2 = rng.randrange(max(1, len(out)))
            if out:
                out[at], out[at_2] = out[at_2], out[at]
    return out


@dataclass(frozen=True)
class Damage:
    """Makes case i of a seed."""

    corpus: list[bytes]
    pieces: list[list[bytes]]

    def case(self, i: int, seed: int) -> bytes:
        rng = random.Random(f"{seed} {i}")
        k = rng.randrange(len(self.corpus))
        data = self.corpus[k]
        if self.pieces and rng.random() < 0.5:
            pieces = self.pieces[k]
            for _ in range(rng.choice((1, 1, 2, 4))):
                pieces = changed_instructions(pieces, self.pieces, rng)
            return b"".join(pieces)
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = changed_bytes(data, self.corpus, rng) or b"."
        return data


# ---- reading them all --------------------------------------------------------------------------------------


def fuzz(
    read: Callable[[bytes], None], damage: Damage, numbers: range, seed: int, at: Any, outcome: Any
) -> None:
    """Read all cases in its own process; `at` holds the number of the current one."""
    for data in damage.corpus:  # triggers late imports
        with contextlib.suppress(ValueError):
            read(data)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA, MAX_DATA))
    events: Counter[str] = Counter()
    is_reading = False

    def audit(event: str, arguments: tuple) -> None:
        if is_reading and not event.startswith(("object.__", "time.", "gc.")):
            events[event] += 1

    sys.addaudithook(audit)
    counts: Counter[str] = Counter()
    failed: list[str] = []
    longest_s = 0.0
    for i in numbers:
        data, at.value = damage.case(i, seed), i
        start_s, is_reading = time.process_time(), True
        try:
            read(data)
            counts["read"] += 1
        except ValueError as error:
            is_reading = False
            counts["refused"] += 1
            if len(str(error)) > 1000:
                failed.append(f"case {i}: an error of {len(str(error))} letters")
        except BaseException as error:
            counts["raised"] += 1
            failed.append(f"case {i}: {type(error).__name__}: {str(error)[:200]}")
        is_reading = False
        took_s = time.process_time() - start_s
        longest_s = max(longest_s, took_s)
        if took_s > MAX_S:
            failed.append(f"case {i}: {took_s:.2f} s")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    facts = dict(counts) | {"audit_events": dict(events), "longest_s": longest_s, "peak_mb": peak_mb}
    outcome.send(facts | {"failed": failed[:20], "num_failed": len(failed) + sum(events.values())})


def run(
    name: str, read: Callable[[bytes], None], corpus: list[bytes], numbers: range, args: Args, cut: bool
) -> dict[str, Any]:
    damage = Damage(corpus, [instructions_of(data) for data in corpus] if cut else [])
    context = multiprocessing.get_context("fork")
    at, (ours, theirs) = context.Value("q", -1), context.Pipe(duplex=False)
    process = context.Process(target=fuzz, args=(read, damage, numbers, args.seed, at, theirs))
    process.start()
    theirs.close()
    try:
        facts = ours.recv()
    except EOFError:
        facts = {"num_failed": 1, "failed": [f"case {at.value}: the process crashed"]}
    process.join()
    print(f"{name}: {len(numbers)} messages, {json.dumps(facts)}", flush=True)
    return facts | {"messages": len(numbers), "exit_code": process.exitcode}


def main(args: Args) -> int:
    """Fuzz all readers; return the exit code."""
    numbers = range(args.first, args.first + args.pickles)
    half = range(args.first, args.first + args.messages // 2)
    stock, messages = stock_pickles(), stock_messages()
    for data in stock:
        read_pickled(data)  # as they come they are read
    frameless = [b"".join(instructions_of(data)) for data in stock]
    renamed = b"\x8c\x1f" + HELPERS.encode()
    attacks = [data for data in HOSTILE.values() if data] + [
        data.replace(b"\x8c" + bytes([len(b"test_pickle_format")]) + b"test_pickle_format", renamed)
        for data in HOSTILE.values()
        if b"test_pickle_format" in data
    ]
    results = {
        "pickles": run("pickles", read_pickled, 2 * stock + frameless + attacks, numbers, args, cut=True),
        "openpi": run("openpi", read_openpi, messages["openpi"], half, args, cut=False),
        "groot": run("groot", read_groot, messages["groot"], half, args, cut=False),
    }
    if args.json is not None:
        write_result(args.json, results, seeds=[args.seed])
    return 1 if any(facts["num_failed"] or facts["exit_code"] for facts in results.values()) else 0


if __name__ == "__main__":
    run_script(Args, main)
