"""Arrays from untrusted descriptions: the text of a dtype, a shape, and bytes."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

MAX_DIMENSIONS = 8
_NUMBERS = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_NPY_HEADER = re.compile(
    rb"\{'descr': '([<>|=]?[a-zA-Z][0-9]{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \(([0-9, ]*)\), \} *\n"
)
_MAX_NPY_HEADER = 512


def dtype_of(text: Any) -> np.dtype:
    """A dtype of numbers, in either byte order; ValueError for anything else."""
    if not isinstance(text, str):
        raise ValueError(f"a dtype is a text, got {type(text).__name__}")
    order, name = (text[:1], text[1:]) if text[:1] in ("<", ">", "|", "=") else ("", text)
    if name not in _NUMBERS:
        raise ValueError(
            f"arrays of {text[:20]!a} do not travel here; allowed: {', '.join(sorted(_NUMBERS))}"
        )
    return np.dtype(order + name)


def array_of(dtype: np.dtype, shape: Any, data: Any, *, is_fortran: bool = False) -> np.ndarray:
    """A view of the bytes, which the shape has to use up; ValueError if it does not."""
    if not isinstance(data, bytes):
        raise ValueError(f"the numbers of an array are bytes, got {type(data).__name__}")
    if not isinstance(shape, Sequence) or isinstance(shape, str | bytes) or len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"an array has a shape of at most {MAX_DIMENSIONS} numbers")
    if not all(type(n) is int and 0 <= n <= len(data) for n in shape):
        raise ValueError(f"a shape has whole numbers from 0 to the {len(data)} bytes that came")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"an array of {dtype} with shape {tuple(shape)} does not fit in {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")


def array_of_npy(data: Any) -> np.ndarray:
    """An .npy file of format 1.0 as numpy writes it; its header is matched, not evaluated. ValueError."""
    if not isinstance(data, bytes) or not data.startswith(_NPY_MAGIC):
        raise ValueError("an array is an .npy file of format 1.0")
    start = len(_NPY_MAGIC) + 2
    end = start + int.from_bytes(data[start - 2 : start], "little")
    header = None if end - start > _MAX_NPY_HEADER else _NPY_HEADER.fullmatch(data[start:end])
    if header is None:
        raise ValueError("expected an .npy header with dtype, order and shape, as numpy writes it")
    shape = [int(n) for n in header[3].decode().replace(" ", "").split(",") if n]
    dtype = dtype_of(header[1].decode())
    return array_of(dtype, shape, data[end:], is_fortran=header[2] == b"True")
