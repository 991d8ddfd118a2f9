"""Who imports whom: every module of the tree, and its arrows to others of it."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("robot_runtime", "policies", "drivers", "sim", "calibration")


def modules(packages: Iterable[str]) -> dict[str, Path]:
    """Name and file of every module."""
    out = {}
    for path in sorted(path for package in packages for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return out


MODULES = modules(PACKAGES)
SCRIPTS = modules(("scripts",))
"""Tools of the repository, which no package imports."""


def imports(path: Path, *, in_functions: bool = True) -> set[str]:
    """What a file imports, for all of its names one entry; what only a type checker sees is left out.

    in_functions: with what is imported only when a function is called.
    """
    return set(_imports(ast.parse(path.read_text()), in_functions=in_functions))


def others_packages(modules: Iterable[str]) -> set[str]:
    """What of other people's these modules of ours import when they are imported."""
    found = {name for module in modules for name in imports(MODULES[module], in_functions=False)}
    return {name for name in found if name.partition(".")[0] not in PACKAGES}


@cache
def arrows(*, in_functions: bool, of_scripts: bool = False) -> dict[str, set[str]]:
    """For every module the others of the tree that it imports."""
    tree = SCRIPTS if of_scripts else MODULES
    return {
        name: {to for to in imports(path, in_functions=in_functions) if to in tree} - {name}
        for name, path in tree.items()
    }


def parents(module: str) -> set[str]:
    """The packages that a module lies in: importing it runs them first."""
    parts = module.split(".")
    return {".".join(parts[:i]) for i in range(1, len(parts))}


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, however many lie between (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for to in graph[name]:
            if to not in index:
                visit(to)
            if to in stack:
                low[name] = min(low[name], low[to])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                out.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return out


def _imports(node: ast.AST, *, in_functions: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not in_functions:
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for each in child.orelse:
                    yield from _imports(ast.Module([each], []), in_functions=in_functions)
                continue
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                inside = [f"{module}.{alias.name}" for alias in names]
                yield from (name if name in MODULES or name in SCRIPTS else module for name in inside)
            case ast.ImportFrom():
                raise ValueError("expected absolute imports only")
        yield from _imports(child, in_functions=in_functions)
