"""msgpack with arrays, for which every project has its own form: `ArrayCodec`.

Values and levels of a message are counted before anything is decoded, whatever their bytes claim.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

MAX_VALUES = 20_000
"""Maximum number of values in a message; an array is a few, a number in a list is one."""
MAX_LEVELS = 16
_DECODER = msgspec.msgpack.Decoder()
# First byte -> bytes of the value itself, and of the number that declares its length.
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8} | {0xCC + i: 1 << i % 4 for i in range(8)}
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_LISTS, _MAPS = {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}


def check_msgpack(data: bytes) -> None:
    """ValueError if it is not msgpack, or has more values or levels than a robot's message.

    Linear, and ends with the first value too many: nothing is made of what it counts.
    """
    at, num_values, open_levels = 0, 0, [1]
    while open_levels:
        if open_levels[-1] == 0:
            open_levels.pop()
            continue
        open_levels[-1] -= 1
        num_values += 1
        if at >= len(data):
            raise ValueError("it ends before its last value")
        at, num_inside = _value(data, at)
        if num_values + num_inside > MAX_VALUES or len(open_levels) > MAX_LEVELS:
            raise ValueError(f"it has more than {MAX_VALUES} values, or {MAX_LEVELS} levels of them")
        if num_inside:
            open_levels.append(num_inside)
    if at != len(data):
        raise ValueError("it does not end with its last value")


def _value(data: bytes, at: int) -> tuple[int, int]:
    """Offset where the value that begins there ends, and how many values it then holds."""
    first, at = data[at], at + 1
    if first < 0x80 or first >= 0xE0:
        return at, 0
    if first < 0xA0:
        return at, (first & 0xF) * (2 if first < 0x90 else 1)
    if first < 0xC0:
        return at + (first & 0x1F), 0
    if first in _FIXED:
        return at + _FIXED[first], 0
    size = _SIZED.get(first) or _LISTS.get(first) or _MAPS.get(first)
    if size is None:
        raise ValueError(f"it has a value of a kind, 0x{first:02x}, that is not read here")
    length = int.from_bytes(data[at : at + size])
    if first in _SIZED:
        return at + size + length, 0
    return at + size, 2 * length if first in _MAPS else length


class ArrayCodec:
    """Converts messages, dicts, to and from bytes."""

    def __init__(
        self,
        whose: str,
        *,
        form: Callable[[Any], dict],
        arrays: Mapping[str | bytes, Callable[[dict], Any]],
    ) -> None:
        """
        whose: project of these messages, for errors.
        form: returns the form of a value that msgpack does not know; TypeError if it may not be sent.
        arrays: by the key that marks such a form, its decoder; ValueError if the form is invalid.
        """
        self._whose, self._form, self._arrays = whose, form, arrays

    def pack(self, message: Any) -> bytes:
        """Encode a message."""
        return msgspec.msgpack.encode(message, enc_hook=self._form)

    def unpack(self, data: bytes) -> dict[str, Any]:
        """Decode a message, arrays as views of it; ValueError reports what is wrong with it."""
        try:
            check_msgpack(data)
            message = self._value(_DECODER.decode(data))
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            raise ValueError(f"this is not a message of {self._whose}: {error}") from error
        if not isinstance(message, dict):
            raise ValueError(f"a message of {self._whose} is a dict, got {type(message).__name__}")
        return message

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if not isinstance(value, dict):
            return value
        for mark, array in self._arrays.items():
            if mark in value:
                return array(value)
        return {key: self._value(item) for key, item in value.items() if isinstance(key, str)}
