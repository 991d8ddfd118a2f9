"""Checks values of a robot's file against the annotations of a driver's constructor: `misfit`."""

import datetime
import enum
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

import numpy as np

_WORDS: Mapping[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    list: "a list",
    dict: "a table",
}
_PLAIN = (str, bool, int, float, list, dict, datetime.date, datetime.time)
"""The types of TOML; any other value is a device that was made."""
_ANYTHING = (object, np.ndarray, np.generic, os.PathLike, enum.Enum, datetime.date, datetime.time)
"""Classes that may be made from a plain value."""


def misfit(driver: Callable[..., Any], key: str, value: Any) -> str:
    """Return what was expected instead, in words; empty: it fits, or is not annotated."""
    try:
        hints = typing.get_type_hints(getattr(driver, "__init__") if isinstance(driver, type) else driver)  # noqa: B009
    except Exception:  # the driver's annotations may raise anything, as for undefined names
        return ""
    kind = hints.get(key, Any)
    if _fits(value, kind):
        return ""
    return " or ".join(dict.fromkeys(_words(each) for each in _members(kind) if each is not types.NoneType))


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (types.UnionType, typing.Union) else (kind,)


def _fits(value: Any, kind: Any) -> bool:
    kind = getattr(kind, "__value__", kind)  # of a `type` statement
    own = get_origin(kind) or kind
    if own in (types.UnionType, typing.Union):
        return any(_fits(value, each) for each in get_args(kind))
    if own is Literal:
        return value in get_args(kind)
    if own is Any or not isinstance(own, type):
        return True
    if own in (str, bool, types.NoneType):
        return isinstance(value, own)
    if own is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if own is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) <= sys.float_info.max
    if own in _ANYTHING or issubclass(own, _ANYTHING[1:]):
        return True
    if issubclass(own, Mapping):
        of = (get_args(kind) or (Any, Any))[1]
        return isinstance(value, Mapping) and all(_fits(each, of) for each in value.values())
    if issubclass(own, Iterable) and own.__module__ in ("builtins", "collections.abc"):
        return isinstance(value, list | tuple) and _fit(value, get_args(kind), is_fixed=own is tuple)
    return not isinstance(value, _PLAIN)


def _fit(values: Iterable[Any], kinds: tuple[Any, ...], *, is_fixed: bool) -> bool:
    values = list(values)
    if is_fixed and kinds and kinds[-1] is not Ellipsis:
        return len(values) == len(kinds) and all(map(_fits, values, kinds))
    return all(_fits(each, kinds[0] if kinds else Any) for each in values)


def _words(kind: Any) -> str:
    own = get_origin(kind) or kind
    if own is Literal:
        return "one of " + ", ".join(map(repr, get_args(kind)))
    if own in _WORDS:
        of = get_args(kind)
        return f"{_WORDS[own]} of {_of(of)}" if own is list and of else _WORDS[own]
    if isinstance(own, type) and issubclass(own, Mapping):
        return f"a table of {_of(get_args(kind)[1:])}"
    if isinstance(own, type) and issubclass(own, Iterable):
        return f"a list of {_of(get_args(kind))}"
    return f'"@NAME", a {getattr(own, "__name__", own)} of [devices.NAME]'


def _of(kinds: tuple[Any, ...]) -> str:
    plural = {str: "texts", int: "whole numbers", float: "numbers"}
    named = [plural.get(each, "values") for each in kinds[:1]] or ["values"]
    return f"{len(kinds)} {named[0]}" if kinds and kinds[-1] is not Ellipsis and len(kinds) > 1 else named[0]
