"""A reader of the pickle *format* that makes plain data and nothing else: `read_pickle`.

A pickle is a program for a stack machine whose instructions import and call what they name. This machine has
only the instructions that push numbers, text, bytes and containers; it imports, calls and sets nothing.
Names are tokens that are looked up in a list; what pickle would have called with them is recognised by its
form: numpy's arrays and numbers, and records whose names and fields the caller gives. Everything is counted
before it is made, so that time and memory are linear in the bytes, and bounded.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from robot_runtime.server.gateways.plain_arrays import array_of, dtype_of

MAX_INSTRUCTIONS = 20_000
"""Maximum number of instructions: a robot's observation takes a few hundred."""
MAX_VALUES = 20_000
"""Maximum number of values in the result, each counted as often as it occurs."""
MAX_DEPTH = 12
MAX_TEXT = 16_384
"""Maximum size of one text [bytes]."""

Records = Mapping[tuple[str, str], frozenset[str]]
"""Module and name of a dataclass -> the fields it may have."""

_OF_NUMPY: Final = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        *(
            (f"numpy.{core}.{module}", name)
            for core in ("core", "_core")
            for module, name in (
                ("multiarray", "_reconstruct"),
                ("multiarray", "scalar"),
                ("numeric", "_frombuffer"),
            )
        ),
    }
)


class PickleError(ValueError):
    """Bytes that are not a pickle of plain data. Names types and counts, never values."""


@dataclass(frozen=True, eq=False)
class Record:
    """An object of the sender's: its name and its fields."""

    name: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class _Token:
    """A name from a list; it only has a meaning in the forms below."""

    module: str
    name: str


@dataclass(eq=False)
class _Dtype:
    text: str
    dtype: np.dtype | None = None  # once its order of bytes is known


@dataclass(eq=False)
class _Array:
    array: np.ndarray | None = None


@dataclass(eq=False)
class _Record:
    token: _Token
    fields: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Item:
    """A value on the stack, its depth and its number of values."""

    value: Any
    depth: int = 0
    count: int = 1


_MARK: Final = _Item(None)
_Pieces = list[_Item]


def read_pickle(data: bytes, records: Records) -> Any:
    """None, numbers, text, bytes, arrays; tuples, lists, dicts and records of them. PickleError."""
    try:
        return _plain(_Machine(data, records).run())
    except PickleError:
        raise
    except ValueError as error:  # of an array
        raise PickleError(str(error)) from error


def _plain(value: Any) -> Any:
    """Resolve the placeholders of numpy's and the sender's objects."""
    match value:
        case _Array(array=array) if array is not None:
            return array
        case _Record(token=token, fields=fields) if fields is not None:
            return Record(token.name, {name: _plain(item) for name, item in fields.items()})
        case list():
            return [_plain(item) for item in value]
        case tuple():
            return tuple(_plain(item) for item in value)
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case _Token() | _Dtype() | _Array() | _Record():
            raise PickleError(f"there is {_kind(value)} where a value is expected")
    return value


def _kind(value: Any) -> str:
    """Name of a value in an error."""
    match value:
        case _Token():
            return f"the name {_cut(f'{value.module}.{value.name}')}"
        case _Dtype():
            return "a dtype"
        case _Array():
            return "an array"
        case _Record():
            return f"a {value.token.name}"
    return type(value).__name__


def _cut(text: str) -> str:
    return ascii(text[:60])[1:-1]


@dataclass(eq=False)
class _Machine:
    data: bytes
    records: Records
    at: int = 0
    stack: list[_Item] = field(default_factory=list)
    memo: list[_Item | None] = field(default_factory=list)

    def run(self) -> Any:
        """The one value that the instructions leave."""
        for _ in range(MAX_INSTRUCTIONS):
            code = self.take(1)[0]
            if code == ord("."):
                if len(self.stack) != 1 or self.stack[0] is _MARK:
                    raise PickleError("a pickle leaves one value")
                if self.at != len(self.data):
                    raise PickleError(f"{len(self.data) - self.at} bytes come after the pickle's end")
                return self.stack[0].value
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise PickleError(f"the instruction 0x{code:02x} is not allowed here")
            instruction(self)
        raise PickleError(f"a pickle has at most {MAX_INSTRUCTIONS} instructions here")

    # ---- bytes ---------------------------------------------------------------------------------------

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if size > len(self.data) - self.at:
            raise PickleError("the pickle ends in the middle of an instruction")
        self.at += size
        return self.data[self.at - size : self.at]

    def take_number(self, form: str) -> Any:
        """The next number, in the words of `struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def take_text(self, size: int) -> str:
        """Text of so many bytes."""
        if size > MAX_TEXT:
            raise PickleError(f"a text has {size} bytes, allowed are {MAX_TEXT}")
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise PickleError("a text is not UTF-8") from None

    def take_line(self) -> str:
        """Text up to the end of the line."""
        end = self.data.find(b"\n", self.at, self.at + 256)
        if end < 0:
            raise PickleError("a name has no end")
        line = self.take_text(end - self.at)
        self.at += 1
        return line

    # ---- stack ---------------------------------------------------------------------------------------

    def push(self, value: Any) -> None:
        """A value that holds no others."""
        self.stack.append(_Item(value))

    def pop(self) -> _Item:
        """The topmost item."""
        if not self.stack or self.stack[-1] is _MARK:
            raise PickleError("an instruction finds no value")
        return self.stack.pop()

    def pop_to_mark(self) -> _Pieces:
        """The items above the topmost mark, which goes."""
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise PickleError("an instruction finds no mark")

    def holding(self, value: Any, items: _Pieces, holder: _Item | None = None) -> _Item:
        """An item that holds others, in addition to what it had."""
        before = holder or _Item(value)
        depth = max([before.depth, *(item.depth + 1 for item in items)])
        count = before.count + sum(item.count for item in items)
        if depth > MAX_DEPTH or count > MAX_VALUES:
            raise PickleError(f"there are more than {MAX_VALUES} values, or {MAX_DEPTH} levels of them")
        return _Item(value, depth, count)

    # ---- instructions --------------------------------------------------------------------------------

    def protocol(self) -> None:
        if not 3 <= (version := self.take(1)[0]) <= 5:
            raise PickleError(f"pickles of protocol 3 to 5 are read, this is {version}")

    def frame(self, size: int) -> None:
        """Check the declared number of bytes, and nothing else."""
        if size > len(self.data) - self.at:
            raise PickleError("a frame is longer than the pickle")

    def make_tuple(self, items: _Pieces) -> None:
        self.stack.append(self.holding(tuple(item.value for item in items), items))

    def tuple_of(self, size: int) -> None:
        self.make_tuple([self.pop() for _ in range(size)][::-1])

    def extend(self, items: _Pieces) -> None:
        held = self.pop()
        if type(held.value) is not list:
            raise PickleError(f"items are for a list, here is {_kind(held.value)}")
        held.value.extend(item.value for item in items)
        self.stack.append(self.holding(held.value, items, held))

    def update(self, items: _Pieces) -> None:
        held = self.pop()
        if type(held.value) is not dict or len(items) % 2:
            raise PickleError(f"pairs of keys and values are for a dict, here is {_kind(held.value)}")
        for key, item in zip(items[::2], items[1::2], strict=True):
            if type(key.value) not in (str, int):
                raise PickleError(f"a key is a text or a whole number, got {_kind(key.value)}")
            held.value[key.value] = item.value
        self.stack.append(self.holding(held.value, items, held))

    def remember(self, index: int) -> None:
        """Memoise the topmost value, in order, as picklers do."""
        if index != len(self.memo) or not self.stack or self.stack[-1] is _MARK:
            raise PickleError("values are remembered one after the other")
        item = self.stack[-1]
        is_whole = not isinstance(item.value, list | dict | _Record)  # these may still grow
        self.memo.append(item if is_whole else None)

    def recall(self, index: int) -> None:
        item = self.memo[index] if index < len(self.memo) else None
        if item is None:
            raise PickleError("a list, dict or object comes twice, or is a part of itself")
        self.stack.append(item)

    def name_token(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise PickleError("a name is two texts")
        if (module, name) not in _OF_NUMPY and (module, name) not in self.records:
            raise PickleError(f"{_cut(f'{module}.{name}')} is not allowed here")
        self.push(_Token(module, name))

    def stack_global(self) -> None:
        name, module = self.pop().value, self.pop().value
        self.name_token(module, name)

    def line_global(self) -> None:
        module = self.take_line()
        self.name_token(module, self.take_line())

    def new_object(self) -> None:
        """Push a record without its fields."""
        arguments, token = self.pop().value, self.pop().value
        if not isinstance(token, _Token) or arguments != ():
            raise PickleError(f"objects are made of a class and nothing else, here is {_kind(token)}")
        if (token.module, token.name) not in self.records:
            raise PickleError(f"{_kind(token)} is nothing to make objects of")
        self.push(_Record(token))

    def reduce(self) -> None:
        """Evaluate a call if it is one of numpy's."""
        arguments, token = self.pop().value, self.pop().value
        if not isinstance(token, _Token) or (token.module, token.name) not in _OF_NUMPY:
            raise PickleError(f"{_kind(token)} is nothing that would be called")
        match token.name, arguments:
            case "dtype", (str() as text, False | 0, True | 1):
                self.push(_Dtype(text))
            case "_reconstruct", (_Token(name="ndarray"), (0,), b"b"):
                self.push(_Array())
            case "scalar", (_Dtype() as dtype, bytes() as data):
                self.push(array_of(_whole(dtype), (), data).item())
            case "_frombuffer", (bytes() as data, _Dtype() as dtype, tuple() as shape, "C" | "F" as order):
                self.push(_Array(array_of(_whole(dtype), shape, data, is_fortran=order == "F")))
            case _:
                raise PickleError(f"numpy's {token.name} is given something else than numpy gives it")

    def build(self) -> None:
        """Fill an object that was made empty, once."""
        state, made = self.pop(), self.pop()
        match made.value, state.value:
            case _Dtype(dtype=None, text=text) as dtype, (3, str() as order, None, None, None, -1, -1, 0):
                dtype.dtype = dtype_of(order + text)
            case _Array(array=None) as blank, (
                1,
                tuple() as shape,
                _Dtype() as dtype,
                bool() as fortran,
                data,
            ):
                blank.array = array_of(_whole(dtype), shape, data, is_fortran=fortran)
            case _Record(fields=None, token=token) as record, dict() as fields:
                allowed = self.records[token.module, token.name]
                if unknown := [key for key in fields if key not in allowed]:
                    raise PickleError(f"a {token.name} has no field {_cut(str(unknown[0]))}")
                record.fields = fields
                self.stack.append(self.holding(record, [state]))
                return
            case _:
                raise PickleError(f"{_kind(made.value)} is filled with something else than belongs into it")
        self.stack.append(made)


def _whole(dtype: _Dtype) -> np.dtype:
    return dtype_of(dtype.text) if dtype.dtype is None else dtype.dtype


def _long(machine: _Machine) -> None:
    size = machine.take(1)[0]
    if size > 8:
        raise PickleError(f"a whole number has {size} bytes, allowed are 8")
    machine.push(int.from_bytes(machine.take(size), "little", signed=True))


def _pushes(value: Any) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(value)


def _number(form: str) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(machine.take_number(form))


def _bytes(size: str) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(machine.take(machine.take_number(size)))


def _text(size: str) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(machine.take_text(machine.take_number(size)))


_INSTRUCTIONS: Final[Mapping[int, Callable[[_Machine], None]]] = {
    0x80: _Machine.protocol,
    0x95: lambda m: m.frame(m.take_number("<Q")),
    ord("("): lambda m: m.stack.append(_MARK),
    ord("N"): _pushes(None),
    0x88: _pushes(True),
    0x89: _pushes(False),
    ord("J"): _number("<i"),
    ord("K"): _number("<B"),
    ord("M"): _number("<H"),
    0x8A: _long,
    ord("G"): _number(">d"),
    0x8C: _text("<B"),
    ord("X"): _text("<I"),
    0x8D: _text("<Q"),
    ord("C"): _bytes("<B"),
    ord("B"): _bytes("<I"),
    0x8E: _bytes("<Q"),
    0x96: _bytes("<Q"),
    ord("]"): lambda m: m.push([]),
    ord("a"): lambda m: m.extend([m.pop()]),
    ord("e"): lambda m: m.extend(m.pop_to_mark()),
    ord(")"): _pushes(()),
    ord("t"): lambda m: m.make_tuple(m.pop_to_mark()),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("}"): lambda m: m.push({}),
    ord("s"): lambda m: m.update([m.pop(), m.pop()][::-1]),
    ord("u"): lambda m: m.update(m.pop_to_mark()),
    0x94: lambda m: m.remember(len(m.memo)),
    ord("q"): lambda m: m.remember(m.take_number("<B")),
    ord("r"): lambda m: m.remember(m.take_number("<I")),
    ord("h"): lambda m: m.recall(m.take_number("<B")),
    ord("j"): lambda m: m.recall(m.take_number("<I")),
    ord("c"): _Machine.line_global,
    0x93: _Machine.stack_global,
    0x81: _Machine.new_object,
    ord("R"): _Machine.reduce,
    ord("b"): _Machine.build,
}
"""The instructions by their byte, as listed by the standard library's `pickletools`."""
