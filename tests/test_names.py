"""What a user imports: all from `robot_runtime`, few of it, and known to her editor."""

import ast
import re
from pathlib import Path

import pytest

import robot_runtime
from tests.source_tree import ROOT

DOORS = ("your_robot", "your_policy", "your_simulator")


def code_of(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))


def codes() -> dict[str, str]:
    """Python that a user is shown: name -> code."""
    out = {path.name: path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))}
    pages = [ROOT / "README.md", *(ROOT / "docs" / f"{door}.md" for door in DOORS)]
    return out | {page.name: code_of(page) for page in pages}


@pytest.mark.parametrize("name", codes())
def test_what_a_user_is_shown_imports_from_the_top_alone(name):
    assert (
        re.findall(
            r"robot_runtime\.\w+ import|from robot_runtime import|import robot_runtime\.", codes()[name]
        )
        == []
    )


def test_the_three_doors_take_at_most_twenty_five_names():
    used = {name for code in codes().values() for name in re.findall(r"\brr\.(\w+)", code)}
    assert used <= set(robot_runtime.__all__)
    assert len(used) <= 25, sorted(used)


def test_an_editor_and_python_know_the_same_names_at_the_same_places():
    tree = ast.parse((ROOT / "robot_runtime" / "__init__.py").read_text())
    seen = {
        alias.name: node.module.removeprefix("robot_runtime.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("robot_runtime.")
        for alias in node.names
    }
    assert seen == robot_runtime._MODULE_OF
    assert sorted(seen) == sorted(robot_runtime.__all__)
    assert {*robot_runtime.__all__} <= {*dir(robot_runtime)}
    for name in robot_runtime.__all__:
        assert getattr(robot_runtime, name) is not None


@pytest.mark.parametrize("name", ["mobile_base.py", "two_arms.py"])
def test_an_example_of_other_parts_is_at_most_forty_lines_of_code(name):
    text = codes()[name]
    code = [line for line in text.splitlines()[ast.parse(text).body[0].end_lineno :] if line.strip()]
    assert len(code) <= 40
