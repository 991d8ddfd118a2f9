"""Damages logs of runs and reads them with every reader, which must give a result or one sentence, within
bounds.

    a log of a run    bytes changed, records cut, values of its journal exchanged, bombs; then
                      info, replay, export, recover, trace, compare, page

A log is of a robot without physics (`tests.log.robots`), with every kind of event. All readers run in this
process. A crash is a fault, and so are an exception that is no sentence, and a file that takes longer or more
memory than its size allows. The case that repeats a fault is printed.
"""

import contextlib
import io
import os
import random
import resource
import struct
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from mcap.opcode import Opcode
from mcap.writer import CompressionType, Writer

from robot_runtime.cli.options import Count, Seed
from robot_runtime.commands.compare import trials_at
from robot_runtime.commands.log import LogExport, LogInfo, LogRecover
from robot_runtime.commands.read_log import log_of
from robot_runtime.commands.replay import Replay
from robot_runtime.commands.trace import Trace
from robot_runtime.errors import RobotRuntimeError
from robot_runtime.log.config import LogConfig
from robot_runtime.log.records import ChunkReader, scan
from robot_runtime.log.start import start_log
from robot_runtime.page.recorded import Recording
from scripts.harness import run_script

MAX_S = 10.0
"""Largest processor time of one reader for a file of some 200 kB."""
MAX_BYTES = 600_000_000
"""Largest growth of the process's memory since before the first damaged file."""
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 1e308, float("nan"), 0.5, "", "a",
    "arm", "[/b]", "\x1b[2J", "x" * 9000, b"", b"\xff" * 24, [], {}, [[]], [1] * 300,
    {"": "Tick"}, {"": "Foreign"}, msgspec.msgpack.Ext(1, b"\0" * 24), msgspec.msgpack.Ext(1, b"\0" * 7),
    msgspec.msgpack.Ext(2, b"\xff\xff"), msgspec.msgpack.Ext(3, b"\0" * 96),
    msgspec.msgpack.Ext(4, b"22 serialization::archive 19"),
    msgspec.msgpack.Ext(5, b""), {"": "Image", "t_ns": 5}, {"": []},
)  # fmt: skip


@dataclass
class Fuzz:
    """Damage logs of runs, and read them with every reader."""

    num: Count = 150
    seed: Seed = 0

    def main(self) -> int:
        """Return 1 if a reader had a fault."""
        outcomes: Counter[str] = Counter()
        faults = 0
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            sound = _sound_logs(folder / "sound")
            path = folder / "damaged.mcap"
            for log in sound:  # triggers late imports
                path.write_bytes(log)
                outcomes += _read(path, folder, "sound")
            before, started_s = _memory(), time.perf_counter()
            for i in range(self.num):
                rng = random.Random(f"{self.seed} {i}")
                how = _damage(rng.choice(sound), rng, path)
                found = _read(path, folder, f"seed {self.seed} {i}, {how}")
                outcomes += found
                if (grown := _memory() - before) > MAX_BYTES:
                    print(f"seed {self.seed} {i}, {how}: took {grown / 1e6:.0f} MB")
                    faults, before = faults + 1, _memory()
            took_s = time.perf_counter() - started_s
        faults += outcomes["crash"] + outcomes["slow"]
        print(f"{self.num} logs in {took_s:.0f} s: {dict(outcomes)}, {faults} faults")
        return int(faults > 0)


def _read(path: Path, folder: Path, how: str) -> Counter[str]:
    """Read a file with every reader; return the outcomes."""
    out: Counter[str] = Counter()
    for reader in _READERS:
        for leftover in folder.glob("out*"):
            leftover.unlink()
        started_s = time.process_time()
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                reader(path, folder)
            out["read"] += 1
        except RobotRuntimeError as error:
            out["sentence"] += 1
            if len(str(error)) > 2000:
                print(f"{how}: {reader.__name__}: a sentence of {len(str(error))} characters")
                out["crash"] += 1
        except (Exception, SystemExit) as error:
            out["crash"] += 1
            print(f"{how}: {reader.__name__}: {type(error).__name__}: {error!s:.300}")
            traceback.print_exc()
        if (took_s := time.process_time() - started_s) > MAX_S:
            out["slow"] += 1
            print(f"{how}: {reader.__name__}: took {took_s:.0f} s")
    return out


def _info(path: Path, folder: Path) -> None:
    LogInfo(file=path).main()


def _replay(path: Path, folder: Path) -> None:
    Replay(file=path).main()


def _export(path: Path, folder: Path) -> None:
    for name in ("out.csv", "out.json"):
        with contextlib.suppress(RobotRuntimeError):
            LogExport(file=path, output=folder / name).main()


def _recover(path: Path, folder: Path) -> None:
    LogRecover(file=path, output=folder / "out.mcap").main()
    with contextlib.suppress(RobotRuntimeError):
        LogInfo(file=folder / "out.mcap").main()


def _trace(path: Path, folder: Path) -> None:
    Trace(file=path, output=folder / "out.trace.json").main()


def _compare(path: Path, folder: Path) -> None:
    trials_at(path, [])


def _page(path: Path, folder: Path) -> None:
    with log_of(path, needs_whole=False) as log:
        recording = Recording(log)
        for share in (0.0, 0.5, 1.0):
            recording.at(share * min(recording.end_s, 1e6))


_READERS: tuple[Callable[[Path, Path], None], ...] = (
    _info, _replay, _export, _recover, _trace, _compare, _page,
)  # fmt: skip


def _memory() -> int:
    """Return the peak memory of this process [bytes]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- sound logs --------------------------------------------------------------------------------------------


def _sound_logs(folder: Path) -> list[bytes]:
    """Return the bytes of one undamaged log for each kind of robot."""
    from robot_runtime.core.policy_info import PolicyInfo
    from robot_runtime.core.values.schema import Schema
    from tests.log.robots import KINDS, TICK, Life

    out = []
    for seed, kind in enumerate(KINDS):
        life = Life(kind, "vlash" if kind != "mobile" else "time-aligned", seed=seed)
        schema = (
            Schema(action_fields=life.spec.fields, num_joints=7, has_gripper=True, has_base=True)
            if kind == "mobile"
            else Schema.of(life.spec)
        )
        log = start_log(
            LogConfig(folder=folder / kind), task="fold", robot="test", schema=schema,
            policy=PolicyInfo(name="tried", action_spec=life.spec, schema=schema),
            control_period_ns=TICK, now_ns=0, is_virtual=True,
        )  # fmt: skip
        for number, entry in enumerate(life.run(60)):
            log.note(entry)
            if number % 40 == 0:
                log.line(number, "a line")
                log.flush()
        log.close({"success": "True"})
        out.append(log.files[0].read_bytes())
    return out


# ---- damage ------------------------------------------------------------------------------------------------


def _damage(log: bytes, rng: random.Random, path: Path) -> str:
    """Write a damaged log; return the kind of damage."""
    how = rng.choice((_bytes, _bytes, _cut, _shuffled, _values, _values, _values, _rewritten, _bomb, _deep))
    content = how(log, rng, path)
    path.write_bytes(content)
    return how.__name__


def _bytes(log: bytes, rng: random.Random, path: Path) -> bytes:
    content = bytearray(log)
    for _ in range(rng.choice((1, 1, 4, 50))):
        at = rng.randrange(len(content))
        content[at] = rng.randrange(256)
    return bytes(content)


def _cut(log: bytes, rng: random.Random, path: Path) -> bytes:
    a, b = sorted(rng.randrange(len(log)) for _ in range(2))
    return rng.choice(
        (log[:a], log[:a] + log[b:], log[:b] + log[a:], log[:a] + rng.randbytes(b - a) + log[b:])
    )


def _shuffled(log: bytes, rng: random.Random, path: Path) -> bytes:
    """Replace lengths of records, times and names by invalid ones."""
    content = bytearray(log)
    at, heads = 8, []
    while at + 9 <= len(log):
        heads.append(at)
        at += 9 + int.from_bytes(log[at + 1 : at + 9], "little")
    at = rng.choice(heads)
    match rng.randrange(3):
        case 0:
            content[at] = rng.randrange(256)
        case 1:
            length = rng.choice((0, 1, 8, 2**16, 2**31, 2**36, 2**63, 2**64 - 1))
            content[at + 1 : at + 9] = length.to_bytes(8, "little")
        case _:
            size = rng.choice((0, 1, 2**20, 2**30, 2**36, 2**64 - 1))
            content[at + 25 : at + 33] = size.to_bytes(8, "little")
    return bytes(content)


def _values(log: bytes, rng: random.Random, path: Path) -> bytes:
    """Exchange values of the journal, or of readable messages; checksums stay right."""
    number, changed = 0, rng.randrange(60)

    def change(topic: str, data: bytes) -> bytes:
        nonlocal number
        number += 1
        if number - 1 != changed and rng.random() > 0.002:
            return data
        codec: Any = msgspec.msgpack if topic == "/journal" else msgspec.json
        value = codec.decode(data)
        for _ in range(rng.randint(1, 3)):
            places = list(_places(value))
            if places:
                holder, key = rng.choice(places)
                other, there = rng.choice(places)
                holder[key] = rng.choice((rng.choice(_VALUES), other[there]))
        with contextlib.suppress(Exception):  # values that JSON lacks, and cycles
            return codec.encode(value)
        return data

    return _written(log, path, change)


def _rewritten(log: bytes, rng: random.Random, path: Path) -> bytes:
    """Change the log's description of its run."""
    path.write_bytes(log)
    info = msgspec.json.decode(scan(path).metadata["run"]["json"])
    for _ in range(rng.randint(1, 2)):
        holder, key = rng.choice(list(_places(info)))
        value = rng.choice(_VALUES)
        holder[key] = value if not isinstance(value, bytes | msgspec.msgpack.Ext) else 7
    return _written(log, path, lambda topic, data: data, msgspec.json.encode(info).decode())


def _bomb(log: bytes, rng: random.Random, path: Path) -> bytes:
    """Add chunks that decompress to far more than their size."""
    import lz4.frame
    import zstandard

    size = rng.choice((2**20, 2**25, 2**28))
    fill = rng.choice((bytes(size), (b"\x80" + bytes(8)) * (size // 9), (b"\x05" + bytes(8)) * (size // 9)))
    kind, packed = rng.choice(
        (
            ("lz4", lz4.frame.compress(fill)),
            ("zstd", zstandard.compress(fill)),
            ("zstd", b"\x28\xb5\x2f\xfd\xe0" + (2**36).to_bytes(8, "little") + b"\0" * 20),
        )
    )
    declared = rng.choice((size, 1000, 2**36))
    crc = rng.choice((0, zlib.crc32(fill)))
    content = struct.pack("<QQQI", 0, 1, declared, crc) + struct.pack("<I", len(kind)) + kind.encode()
    content += struct.pack("<Q", len(packed)) + packed
    record = struct.pack("<BQ", Opcode.CHUNK, len(content)) + content
    path.write_bytes(log)
    at = scan(path).chunks[0].offset - 9
    return log[:at] + record * rng.choice((1, 3, 40)) + log[at:]


def _deep(log: bytes, rng: random.Random, path: Path) -> bytes:
    deep = rng.choice((40, 900, 100_000))
    value = b"\x91" * deep + b"\x01" if rng.random() < 0.5 else b"\x81\xa1a" * deep + b"\x01"
    text = b'{"a":[' * deep + b"1" + b"]}" * deep
    return _written(log, path, lambda topic, data: value if topic == "/journal" else text)


def _written(
    log: bytes, path: Path, change: Callable[[str, bytes], bytes], about: str | None = None
) -> bytes:
    """Write a log with other messages and right checksums."""
    path.write_bytes(log)
    layout, out = scan(path), io.BytesIO()
    writer = Writer(out, chunk_size=20_000, compression=CompressionType.ZSTD)
    writer.start(profile=layout.profile)
    writer.add_metadata("run", {"json": layout.metadata["run"]["json"] if about is None else about})
    channels: dict[str, int] = {}
    for message in ChunkReader(path, layout).messages(layout.chunks):
        if message.topic not in channels:
            channels[message.topic] = writer.register_channel(message.topic, "json", 0)
        data = change(message.topic, message.data)
        writer.add_message(channels[message.topic], message.log_ns, data, message.log_ns)
    writer.add_metadata("end", layout.metadata.get("end", {}))
    writer.finish()
    return out.getvalue()


def _places(data: Any) -> Any:
    for key in list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, key
        yield from _places(data[key])


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "200")
    run_script(Fuzz, Fuzz.main)
