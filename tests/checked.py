"""Annotations checked at every call, in tests: types by beartype, shapes of arrays by jaxtyping.

jaxtyping's own import hook binds the arguments of every call and checks them twice, which is most of what a
control loop would do in a test; here functions with an array in their signature get only what shapes need, a
scope in which a dimension has one size, and beartype checks arguments and result once.
"""

import ast
import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped


def check_package(name: str) -> None:
    """Check all calls of functions and dataclasses in a package that is yet to be imported."""
    imported = [each for each in sys.modules if f"{each}.".startswith(f"{name}.")]
    if imported:
        raise RuntimeError(f"expected a package that is yet to be imported; {imported} are there already")
    sys.meta_path.insert(0, _Finder(name))


def checked(what: Any) -> Any:
    """The same function, its annotations checked whenever it is called; or the same class, its fields."""
    if inspect.isclass(what):
        if dataclasses.is_dataclass(what) and "__init__" in vars(what):
            what.__init__ = checked(what.__init__)
        return what
    has_arrays = any(map(_names_array, what.__annotations__.values()))
    return _with_dimensions(beartype(what)) if has_arrays else beartype(what)


_DIMENSIONS = jaxtyped("context")
"""Has no state of its own."""


def _with_dimensions(what: Callable) -> Callable:
    @functools.wraps(what)
    def inner(*args, **kwargs):
        with _DIMENSIONS:
            return what(*args, **kwargs)

    return inner


def _names_array(hint: Any) -> bool:
    is_array = inspect.isclass(hint) and issubclass(hint, AbstractArray)
    return is_array or any(map(_names_array, get_args(hint)))


class _Finder(MetaPathFinder):
    def __init__(self, package: str):
        self._package = package

    def find_spec(self, fullname, path=None, target=None):
        if not f"{fullname}.".startswith(f"{self._package}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Puts `checked` on all functions and classes of a module; what Python has cached of it is not used."""

    def get_code(self, fullname):
        tree = _Decorate().visit(ast.parse(self.get_data(self.path), self.path))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module):
        module._checked = checked
        super().exec_module(module)


class _Decorate(ast.NodeTransformer):
    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        node.decorator_list.append(_decorator(node))  # innermost: sees the function as it is written
        return node

    def visit_ClassDef(self, node):
        self.generic_visit(node)
        node.decorator_list.insert(0, _decorator(node))  # outermost: sees the `__init__` of a dataclass
        return node


def _decorator(node: ast.stmt) -> ast.expr:
    return ast.copy_location(ast.Name("_checked", ast.Load()), node)
