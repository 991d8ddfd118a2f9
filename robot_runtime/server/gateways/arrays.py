"""msgpack with arrays, which every project has in a form of its own: `ArrayCodec`."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

_DECODER = msgspec.msgpack.Decoder()


class ArrayCodec:
    """Messages, dicts, to and from bytes."""

    def __init__(
        self,
        whose: str,
        *,
        form: Callable[[Any], dict],
        arrays: Mapping[str | bytes, Callable[[dict], Any]],
    ) -> None:
        """
        whose: messages these are, for errors.
        form: what travels in place of a value that msgpack does not know; TypeError if it may not travel.
        arrays: by the key that marks such a form, what it stands for; ValueError if it cannot be.
        """
        self._whose, self._form, self._arrays = whose, form, arrays

    def pack(self, message: Any) -> bytes:
        """As it travels."""
        return msgspec.msgpack.encode(message, enc_hook=self._form)

    def unpack(self, data: bytes) -> dict[str, Any]:
        """A message, arrays as views of it; ValueError says what is wrong with it."""
        try:
            message = self._value(_DECODER.decode(data))
        except (msgspec.MsgspecError, TypeError, RecursionError) as error:
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
