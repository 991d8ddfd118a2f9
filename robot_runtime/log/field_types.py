"""Checks that decoded fields have the types and shapes that their class declares.

A log may be untrusted: a value is checked once, where it is decoded, so that no reader gets a text for a
number or an array with another number of axes.
"""

import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np

Check = Callable[[Any, dict[str, int]], bool]
"""Takes a value, and the sizes of named axes found in other fields of the same object."""
_INT64 = 2**63


def checks_of(kind: Callable[..., Any]) -> dict[str, Check]:
    """A check for each annotated field of a class, or parameter of a function, by name."""
    return {name: _check(hint) for name, hint in typing.get_type_hints(kind, include_extras=True).items()}


def _check(hint: Any) -> Check:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value, sizes: True
    if origin is Annotated and args[0] is np.ndarray:
        return _of_shape(args[1])
    if isinstance(axes := getattr(hint, "dim_str", None), str):  # jaxtyping's, in tests
        return _of_shape(axes)
    if origin in (Union, types.UnionType):
        return _any_of([_check(each) for each in args])
    if origin is Literal:
        return lambda value, sizes: value in args
    if origin is tuple:
        return _tuple_of(args)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_of(_check(args[1]))
    if origin is not None:  # a function
        return lambda value, sizes: callable(value)
    if hint is float:
        return lambda value, sizes: type(value) is float or _is_int(value)
    if hint is int:
        return lambda value, sizes: _is_int(value)
    return lambda value, sizes: isinstance(value, hint)


def _is_int(value: Any) -> bool:
    return type(value) is int and -_INT64 <= value < _INT64


def _any_of(checks: list[Check]) -> Check:
    return lambda value, sizes: any(check(value, sizes) for check in checks)


def _tuple_of(args: tuple[Any, ...]) -> Check:
    if args[-1] is ...:
        each = _check(args[0])
        return lambda value, sizes: type(value) is tuple and all(each(item, sizes) for item in value)
    checks = [_check(arg) for arg in args]
    return lambda value, sizes: (
        type(value) is tuple
        and len(value) == len(checks)
        and all(check(item, sizes) for check, item in zip(checks, value, strict=True))
    )


def _mapping_of(each: Check) -> Check:
    return lambda value, sizes: (
        isinstance(value, Mapping) and all(type(key) is str and each(item, {}) for key, item in value.items())
    )


def _of_shape(axes: str) -> Check:
    """axes: as in `Float[np.ndarray, "6 N"]`: a number is a size, a name the same size in all fields."""
    names = axes.split()

    def check(value: Any, sizes: dict[str, int]) -> bool:
        return (
            isinstance(value, np.ndarray)
            and value.ndim == len(names)
            and all(
                size == (int(name) if name.isdigit() else sizes.setdefault(name, size))
                for name, size in zip(names, value.shape, strict=True)
            )
        )

    return check
