"""Addresses as people type them."""

import pytest

from robot_runtime.errors import InvalidValueError
from robot_runtime.transport.address import (
    address_to_connect,
    address_to_listen,
    host_and_port,
    is_local,
)


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("localhost:5757", "tcp://localhost:5757"),
        ("tcp://127.0.0.1:5757", "tcp://127.0.0.1:5757"),
        ("[::1]:5757", "tcp://[::1]:5757"),
        ("robot-7.lab:5757", "tcp://robot-7.lab:5757"),
        ("ipc:///tmp/x", "ipc:///tmp/x"),
    ],
)
def test_an_address_without_a_scheme_is_taken_as_tcp(typed, address):
    assert address_to_connect(typed) == address
    assert address_to_listen(typed) == address


def test_whoever_listens_may_take_any_host_and_any_port_and_whoever_connects_may_not():
    assert address_to_listen("*:0") == "tcp://*:*"
    for address in ("*:5757", "tcp://localhost:*", "localhost:0"):
        with pytest.raises(InvalidValueError, match="one host and one port"):
            address_to_connect(address)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("localhost", "names no port"),
        ("localhost:", "names no port"),
        ("tcp://[::1]", "names no port"),
        (":5757", "names no host"),
        ("localhost:99999", "there is no port 99999"),
        ("localhost:57x", "'57x' is no port number"),
        ("localhost:-1", "'-1' is no port number"),
        ("localhost:５７", "is no port number"),
        ("::1:5757", r"needs brackets: \[::1\]:5757"),
        ("local host:5757", "'local host' is no host's name"),
        (" localhost:5757", "is no host's name"),
        ("localhost:5757 ", "is no port number"),
        ("http://localhost:5757", "scheme 'http' is not known"),
        ("inproc://server", "scheme 'inproc' is not known, tcp and ipc are"),
        ("ipc:///tmp/a\0b", r"'ipc:///tmp/a\\x00b': expected a file name"),
        ("localhost/x:5757", "is no host's name"),
        ("", "names no port"),
    ],
)
def test_what_is_no_address_is_refused_in_one_sentence(typed, words):
    for parse in (address_to_listen, address_to_connect):
        with pytest.raises(InvalidValueError, match=words):
            parse(typed)
    if "://" not in typed:
        with pytest.raises(InvalidValueError, match=words):
            host_and_port(typed)


def test_only_what_no_other_machine_can_reach_is_local():
    for address in ("localhost:1", "tcp://localhost:1", "tcp://127.8.9.1:1", "[::1]:1", "ipc://x"):
        assert is_local(address), address
    for address in (
        "tcp://127.evil.example:1",
        "*:1",
        "0.0.0.0:1",
        "tcp://[::]:1",
        "localhost.:1",
        "10.0.0.1:1",
    ):
        assert not is_local(address), address
