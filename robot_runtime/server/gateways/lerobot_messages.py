"""Messages between LeRobot's robot client and server, without LeRobot.

gRPC carries protobuf messages of at most two fields, with pickles of dataclasses of
`lerobot.async_inference.helpers`. They are decoded as plain data; answers are written in pickle's format.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from msgspec import Struct

from robot_runtime.server.gateways.pickle_format import PickleError, Record, read_pickle

HELPERS = "lerobot.async_inference.helpers"
BEGIN, END = 1, 3  # of TransferState
_RECORDS: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    (HELPERS, "TimedObservation"): frozenset({"timestamp", "timestep", "observation", "must_go"}),
    (HELPERS, "RemotePolicyConfig"): frozenset(
        {
            "policy_type",
            "pretrained_name_or_path",
            "lerobot_features",
            "actions_per_chunk",
            "device",
            "rename_map",
        }
    ),
}


class Checkpoint(Struct, frozen=True, kw_only=True):
    """Source of a LeRobot policy."""

    kind: str = ""
    """Its type, as act; empty: unknown."""
    called: tuple[str, ...] = ()
    """Names by which a client may ask for it."""


@dataclass(frozen=True, kw_only=True)
class Instructions:
    """A client's first message, about itself."""

    kind: str
    """The policy_type: act, diffusion, ..."""
    policy: str
    """The pretrained_name_or_path."""
    features: Mapping[str, Any]
    num_actions: int
    renamed: Mapping[str, str]
    """Features of the robot -> the policy's names for them, where those differ."""


def read_instructions(data: bytes) -> Instructions:
    """A pickled RemotePolicyConfig; ValueError reports what came instead."""
    fields = _fields(data, "RemotePolicyConfig")
    kind, policy = fields.get("policy_type"), fields.get("pretrained_name_or_path")
    features = fields.get("lerobot_features")
    num_actions = fields.get("actions_per_chunk")
    if not isinstance(kind, str) or not isinstance(policy, str) or not isinstance(features, dict):
        raise ValueError(
            "policy instructions have a policy_type, a pretrained_name_or_path and lerobot_features"
        )
    if type(num_actions) is not int or num_actions < 1:
        raise ValueError("actions_per_chunk is a whole number of at least 1")
    renamed = fields.get("rename_map") or {}
    if not isinstance(renamed, dict) or not all(isinstance(s, str) for it in renamed.items() for s in it):
        raise ValueError("rename_map has names for names")
    return Instructions(kind=kind, policy=policy, features=features, num_actions=num_actions, renamed=renamed)


def read_observation(data: bytes) -> tuple[float, int, dict[str, Any]]:
    """A pickled TimedObservation: when it was made in the client's time [s], the number of its step, and
    what was seen. ValueError reports what came instead."""
    fields = _fields(data, "TimedObservation")
    timestamp, timestep, raw = (fields.get(name) for name in ("timestamp", "timestep", "observation"))
    if type(timestamp) is not float or not np.isfinite(timestamp):
        raise ValueError("the timestamp of an observation is a finite number of seconds")
    if type(timestep) is not int or not 0 <= timestep < 2**30:
        raise ValueError("the timestep of an observation is a whole number")
    if not isinstance(raw, dict):
        raise ValueError(f"an observation is a dict, got {type(raw).__name__}")
    return timestamp, timestep, {str(key): value for key, value in raw.items()}


def _fields(data: bytes, name: str) -> Mapping[str, Any]:
    try:
        record = read_pickle(data, _RECORDS)
    except PickleError as error:
        raise ValueError(f"this is not a {name}: {error}") from error
    if not isinstance(record, Record) or record.name != name:
        got = record.name if isinstance(record, Record) else type(record).__name__
        raise ValueError(f"expected a {name}, got {got}")
    return record.fields


# ---- answers -----------------------------------------------------------------------------------------


def written_actions(rows: np.ndarray, *, timestamp: float, timestep: int, dt_s: float) -> bytes:
    """A pickled list of TimedActions, one for each row (n, D), the first at `timestamp`.

    The stock client's unpickler makes their actions with `torch.tensor`: float32.
    """
    actions = (
        _timed_action(row, timestamp + i * dt_s, timestep + i) for i, row in enumerate(rows.astype(float))
    )
    return b"\x80\x04](" + b"".join(actions) + b"e."


def _timed_action(row: np.ndarray, timestamp: float, timestep: int) -> bytes:
    numbers = b"".join(map(_float, row))
    tensor = _name("torch", "tensor") + b"](" + numbers + b"e\x85R"
    fields = (
        (_text("timestamp"), _float(timestamp)),
        (_text("timestep"), b"J" + struct.pack("<i", timestep)),
        (_text("action"), tensor),
    )
    return _name(HELPERS, "TimedAction") + b")\x81}(" + b"".join(map(b"".join, fields)) + b"ub"


def _text(text: str) -> bytes:
    return b"\x8c" + struct.pack("<B", len(text)) + text.encode()


def _name(module: str, name: str) -> bytes:
    return _text(module) + _text(name) + b"\x93"


def _float(number: float) -> bytes:
    return b"G" + struct.pack(">d", number)


# ---- protobuf ----------------------------------------------------------------------------------------


def actions_message(data: bytes) -> bytes:
    """An `Actions` with that pickle; empty for none."""
    return b"" if not data else b"\x0a" + _varint(len(data)) + data


def data_of_setup(message: bytes) -> bytes:
    """The data of a `PolicySetup`; ValueError."""
    return next((value for number, value in _parts(message) if number == 1), b"")


def piece_of_observation(message: bytes) -> tuple[int, bytes]:
    """State of the transfer, and data, of an `Observation`; ValueError."""
    state, data = 0, b""
    for number, value in _parts(message):
        if number == 1 and isinstance(value, int):
            state = value
        if number == 2 and isinstance(value, bytes):
            data = value
    return state, data


def joined(messages: Iterable[bytes], max_bytes: int) -> bytes:
    """The data of a stream of `Observation`s; ValueError if it is longer than that."""
    out = bytearray()
    for message in messages:
        state, data = piece_of_observation(message)
        if state == BEGIN:
            out.clear()
        out += data
        if len(out) > max_bytes:
            raise ValueError(f"an observation has at most {max_bytes} bytes")
        if state == END:
            break
    return bytes(out)


def _parts(message: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and values of a message: integers, and bytes."""
    at, num_fields = 0, 0
    while at < len(message):
        num_fields += 1
        tag, at = _read_varint(message, at)
        value, at = _read_varint(message, at)
        if tag & 7 == 2:
            size, at = value, at + value
            if at > len(message):
                raise ValueError("a protobuf message ends before its data")
            yield tag >> 3, message[at - size : at]
        elif tag & 7 == 0:
            yield tag >> 3, value
        if tag & 7 not in (0, 2) or num_fields > 16:
            raise ValueError("this is not a message of LeRobot's")


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(message):
            break
        byte, at = message[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("this is not a message of LeRobot's")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
