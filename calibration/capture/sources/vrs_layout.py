"""How a VRS file's records are laid out, as its own tags say: `RecordLayout`, `layout_of`.

Which fields a stream's records have, and where, its own tags say, by kind and version of the format:

    RF:Data:2     data_layout/size=64+image/jpg
    DL:Data:2:0   {"data_layout": [{"name": "capture_timestamp_ns", "type": "DataPieceValue<int64_t>",
                                    "offset": 40}, ...]}
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from robot_runtime.errors import InvalidValueError

_NUMBERS = {
    "Bool": "?", "char": "<i1", "int8_t": "<i1", "uint8_t": "<u1", "int16_t": "<i2", "uint16_t": "<u2",
    "int32_t": "<i4", "uint32_t": "<u4", "int64_t": "<i8", "uint64_t": "<u8", "float": "<f4", "double": "<f8",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RecordLayout:
    """How records of one stream, kind and version are laid out."""

    fields: np.dtype[Any]
    """Name -> number or numbers, of those fields that have a fixed place."""
    num_varying: int
    """How many fields of varying length stand behind."""
    content: str
    """What follows the fields: image/jpg, image/raw; empty: nothing."""


def layout_of(where: str, fields: str, head: str, content: str) -> RecordLayout:
    """
    where: said in errors; fields: the tag DL; head, content: the tag RF, before and behind its first +.
    InvalidValueError: not of that form.
    """
    try:
        pieces = json.loads(fields)["data_layout"]
        placed = [each for each in pieces if "offset" in each]
        known = [(each, form) for each in placed if (form := _form(each)) is not None]
        ends = [each["offset"] + np.dtype(form).itemsize for each, form in known]
        _, says_size, said = head.partition("/size=")
        last = max((each["offset"] for each in placed), default=0)
        if not says_size and placed and _form(max(placed, key=lambda each: each["offset"])) is None:
            raise InvalidValueError(f"{where}: the length of its records is not known, field at {last}")
        size = int(said) if says_size else max(ends, default=0)
        names = [each["name"] for each, _ in known]
        shape = {"names": names, "formats": [form for _, form in known], "itemsize": size}
        dtype: np.dtype[Any] = np.dtype({**shape, "offsets": [each["offset"] for each, _ in known]})  # type: ignore[call-overload]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InvalidValueError):
            raise
        raise InvalidValueError(f"{where}: its fields cannot be read, {error}: {fields[:80]}") from error
    return RecordLayout(fields=dtype, num_varying=len(pieces) - len(placed), content=content)


def _form(piece: Mapping[str, Any]) -> Any:
    """What numpy calls it; None: nothing that is known here."""
    outer, _, inner = str(piece["type"]).partition("<")
    number = _NUMBERS.get(inner.rstrip(">"))
    if number is None or outer not in ("DataPieceValue", "DataPieceArray"):
        return None
    return number if outer == "DataPieceValue" else (number, (int(piece["size"]),))
