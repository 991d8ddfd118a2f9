"""Pickles are read as data: what stock clients send comes through, and nothing else does anything."""

import contextlib
import gc
import os
import pickle
import pickletools
import time
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.server.gateways import pickle_format
from robot_runtime.server.gateways.pickle_format import PickleError, Record, read_pickle

RECORDS = {(__name__, "Told"): frozenset({"name", "values"})}


@dataclass
class Told:
    name: str
    values: dict


def read(value, protocol: int = 4):
    return read_pickle(pickle.dumps(value, protocol), RECORDS)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False)
    | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner)
    | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(plain, st.sampled_from([3, 4, 5]))
def test_plain_data_comes_back_as_it_went(value, protocol: int):
    assert read(value, protocol) == value


@given(
    st.sampled_from(["<f4", ">f8", "<i2", ">u4", "|u1", "|b1", "<f2"]),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([4, 5]),
)
def test_arrays_of_every_dtype_order_and_shape_come_back(dtype: str, shape, is_fortran: bool, protocol: int):
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    array = np.asfortranarray(array) if is_fortran else array
    back = read({"a": array, "strided": array[::1, ...]}, protocol)["a"]
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype


@pytest.mark.parametrize("number", [np.float32(0.25), np.float64(1.5), np.int64(-3), np.bool_(True)])
def test_numpys_numbers_come_as_numbers(number):
    back = read([number, number])
    assert back == [number.item()] * 2
    assert type(back[0]) is type(number.item())


def test_an_object_of_the_list_comes_as_its_name_and_fields():
    told = read(Told(name="x", values={"a": 1}))
    assert isinstance(told, Record)
    assert (told.name, told.fields) == ("Told", {"name": "x", "values": {"a": 1}})


# ---- what was made to run code, to read memory, or to hang -------------------------------------------


class Runs:
    def __reduce__(self):
        return (os.system, ("false",))


def name(module: str, attribute: str) -> bytes:
    def text(s: str) -> bytes:
        return b"\x8c" + bytes([len(s)]) + s.encode()

    return text(module) + text(attribute) + b"\x93"


DTYPE = name("numpy", "dtype")
FORGED_DTYPE = DTYPE + b"\x8c\x02O8\x89\x88\x87R(K\x03\x8c\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x20tb"
HOSTILE = {
    "a command": pickle.dumps(Runs()),
    "a command in a dict": pickle.dumps({"a": Runs()}),
    "a command in the oldest protocol": pickle.dumps(Runs(), 0),
    "a dotted name": b"\x80\x04" + name("numpy", "dtype.type.__subclasses__") + b")R.",
    "a class as result": b"\x80\x04" + name(__name__, "Told") + b".",
    "a call of a record's class": b"\x80\x04" + name(__name__, "Told") + b")R.",
    "state for a class": b"\x80\x04" + name(__name__, "Told") + b"}\x8c\x04nameNsb.",
    "slot state": b"\x80\x04" + name(__name__, "Told") + b")\x81N}\x8c\x04nameNs\x86b.",
    "an object dtype": b"\x80\x04" + DTYPE + b"\x8c\x02O8\x89\x88\x87R.",
    "an object dtype by its state": b"\x80\x04" + name("numpy._core.multiarray", "scalar") + FORGED_DTYPE
    + b"C\x0800000000\x86R.",
    "an object array": pickle.dumps(np.array([{}, []], dtype=object)),
    "a dtype with fields": pickle.dumps(np.zeros(2, dtype=[("a", "f4")])),
    "text as an array": pickle.dumps(np.array(["a", "b"])),
    "dates": pickle.dumps(np.zeros(2, "datetime64[s]")),
    "a dtype that is filled twice": b"\x80\x04" + DTYPE + b"\x8c\x02f4\x89\x88\x87R"
    + b"(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb" * 2 + b".",
    "a list that holds itself": b"\x80\x04]\x94h\x00a.",
    "a persistent id": b"\x80\x04K\x01Q.",
    "an extension": b"\x80\x04\x82\x01.",
    "a set": pickle.dumps({1}),
    "bytearray by its name": pickle.dumps(bytearray(b"x"), 4),
    "an unknown field": pickle.dumps(Told("x", {})).replace(b"values", b"volume"),
    "a key that is a tuple": b"\x80\x04}" + b")" + b"\x85" * 5 + b"Ns.",
    "an int without end": b"\x80\x04\x8b\xff\xff\xff\x7f.",
    "more bytes than there are": b"\x80\x04B\xff\xff\xff\xff.",
    "nothing": b"",
    "an empty stack": b"\x80\x04.",
    "a mark as result": b"\x80\x04(.",
    "two results": b"\x80\x04NN.",
    "bytes after the end": b"\x80\x04N.N",
}  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_plain_data_is_refused_in_a_sentence(data: bytes):
    with pytest.raises(PickleError) as refused:
        read_pickle(data, RECORDS)
    assert len(str(refused.value)) < 200
    assert str(refused.value).isascii()


@pytest.mark.parametrize("protocol", [4, 5])
def test_an_array_gets_no_byte_that_did_not_come(protocol):
    """The shape of a message is believed only as far as its bytes reach."""
    array, shape = pickle.dumps(np.zeros(3, np.uint8), protocol), b"K\x03\x85"
    assert array.count(shape) == 1
    for size in (b"K\x04", b"K\x02", b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 7 + b"\x7f"):
        with pytest.raises(PickleError):
            read_pickle(array.replace(shape, size + b"\x85"), RECORDS)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04)" + b"\x85" * 19_000 + b".",
        b"\x80\x04)\x94" + b"".join(b"h" + bytes([i]) * 2 + b"\x86\x94" for i in range(40)) + b".",
        b"\x80\x04)" + b"\x94\x94\x86".join([b"h\x00"] * 3000) + b".",
        b"\x80\x04]" + b"Na" * 9_990 + b".",
        b"\x80\x04](" + b"N" * 19_990 + b"e.",
        b"\x80\x04}("
        + b"".join(b"\x8a\x08" + (i << 40).to_bytes(8, "little") + b"N" for i in range(9_000))
        + b"u.",
        b"\x80\x04" + b"(" * 19_990 + b".",
        b"\x80\x04" + b"N" * 5_000_000,
    ],
    ids=["tuples in tuples", "doubled tuples", "memo", "appends", "list", "dict", "marks", "instructions"],
)  # fmt: skip
def test_time_is_bounded_whatever_comes(data: bytes):
    gc.collect()
    gc.disable()  # a round of it goes through all that other tests have loaded
    try:
        start_s = time.thread_time()
        with contextlib.suppress(PickleError):
            read_pickle(data, RECORDS)
        assert time.thread_time() - start_s < 0.5
    finally:
        gc.enable()


def test_instructions_are_called_as_pickletools_calls_them():
    """No more than what picklers of plain data, arrays and records use."""
    names = {pickletools.code2op[chr(code)].name for code in pickle_format._INSTRUCTIONS}
    assert not names & {
        "INST",
        "OBJ",
        "NEWOBJ_EX",
        "EXT1",
        "EXT2",
        "EXT4",
        "PERSID",
        "BINPERSID",
        "LONG4",
        "INT",
    }


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_be_read_or_refused(data: bytes):
    for start in (b"", b"\x80\x04", pickle.dumps({"a": np.zeros(3)})[:40]):
        with contextlib.suppress(PickleError):
            read_pickle(start + data, RECORDS)


@given(st.data())
def test_a_stock_message_with_some_bytes_changed_is_read_or_refused(data: st.DataObject):
    message = bytearray(
        pickle.dumps(Told("x", {"a": np.zeros((2, 3), np.uint8), "b": np.float32(1), "c": 2.0}))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PickleError):
        read_pickle(bytes(message), RECORDS)
