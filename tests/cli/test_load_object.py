"""A user's object is found by file, by module or by entry point, or it is said what was looked for where."""

import sys

import pytest

from robot_runtime.error_text import sentence
from robot_runtime.errors import InvalidValueError, UnknownNameError
from robot_runtime.load_object import load_made, load_object
from robot_runtime.user_code import UserCodeError, forget

GROUP = "robot_runtime.robots"


@pytest.fixture(autouse=True)
def in_a_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def load(text):
    return load_object(text, group=GROUP, what="robot")


def test_an_object_of_a_file_is_found_and_so_is_what_the_file_imports(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "sibling_of_mine.py").write_text("answer = 42\n")
    (tmp_path / "parts" / "mine.py").write_text("from sibling_of_mine import answer as robot\n")
    assert load("parts/mine.py:robot") == 42


def test_a_file_is_executed_once_and_its_classes_know_their_module(tmp_path):
    (tmp_path / "mine.py").write_text("class Robot: pass\nrobot = Robot()\n")
    assert load("mine.py:robot") is load("mine.py:robot")
    assert load("mine.py:Robot").__module__ == "mine"


def test_a_file_with_the_name_of_another_module_hides_nothing(tmp_path):
    (tmp_path / "json.py").write_text("robot = 'mine'\n")
    assert load("json.py:robot") == "mine"
    import json

    assert json.loads("1") == 1


def test_an_object_of_a_module_in_this_folder_is_found(tmp_path):
    (tmp_path / "my_package_of_robots").mkdir()
    (tmp_path / "my_package_of_robots" / "__init__.py").touch()
    (tmp_path / "my_package_of_robots" / "left.py").write_text("robot = 'left'\n")
    assert load("my_package_of_robots.left:robot") == "left"


def test_an_object_of_an_installed_package_is_found_by_its_entry_point(tmp_path):
    (tmp_path / "vendor_of_arms.py").write_text("robot = 'vendor'\n")
    info = tmp_path / "vendor_of_arms-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-of-arms\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nvendor = vendor_of_arms:robot\n")
    sys.path.insert(0, str(tmp_path))
    assert load("vendor") == "vendor"
    with pytest.raises(InvalidValueError, match=r"unknown robot 'other'.*\(vendor\)"):
        load("other")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nowhere.py:robot", "there is no such file"),
        ("mine.py", "names a file; name the robot in it too, as mine.py:robot"),
        ("mine.py:", "a robot is named as path/to/file.py:object, package.module:object"),
        (":robot", "a robot is named as"),
        ("no_such_module_at_all.x:robot", "there is no module no_such_module_at_all"),
        ("no_such_name", "unknown robot 'no_such_name': a robot is named as"),
        ("os:abort", "os is of Python's standard library: expected a robot of yours"),
        ("this:s", "this is of Python's standard library: expected a robot of yours"),
    ],
)
def test_a_name_of_nothing_is_refused_with_what_would_be_one(text, words):
    with pytest.raises(InvalidValueError) as refused:
        load(text)
    assert words in str(refused.value)


def test_a_name_that_a_file_has_not_is_answered_with_those_it_has(tmp_path):
    (tmp_path / "mine_too.py").write_text("left = right = 1\n")
    with pytest.raises(UnknownNameError, match=r"unknown object of mine_too\.py 'robot'; valid: left, right"):
        load("mine_too.py:robot")


def test_a_function_of_the_standard_library_that_a_file_has_imported_is_not_called(tmp_path):
    (tmp_path / "importing.py").write_text("from os import abort\n")
    with pytest.raises(InvalidValueError, match=r"posix is of Python's standard library"):
        load_made("importing.py:abort", group=GROUP, what="robot", is_one=lambda found: False)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_module_of_hers\n", "ModuleNotFoundError: No module named 'no_such_module_of_hers'"),
        ("def robot(:\n", "SyntaxError"),
        ("raise ValueError('mine')\n", "ValueError: mine"),
    ],
)
def test_code_that_fails_is_shown_with_its_own_traceback(tmp_path, code, words):
    (tmp_path / "broken_of_mine.py").write_text(code)
    for text in ("broken_of_mine.py:robot", "broken_of_mine:robot"):
        with pytest.raises(UserCodeError) as failed:
            load(text)
        assert words in str(failed.value)
        assert "broken_of_mine.py" in str(failed.value)
        assert "load_object.py" not in str(failed.value)


def test_what_has_changed_is_loaded_anew_once_it_is_forgotten_with_the_files_beside_it(tmp_path):
    (tmp_path / "part_of_mine.py").write_text("answer = 1\n")
    (tmp_path / "changing.py").write_text("from part_of_mine import answer as robot\n")
    assert load("changing.py:robot") == 1
    (tmp_path / "part_of_mine.py").write_text("answer = 1000\n")
    assert load("changing.py:robot") == 1
    forget()
    assert load("changing.py:robot") == 1000
    assert "json" in sys.modules


def test_an_error_in_mid_run_is_shown_from_where_it_enters_the_users_code(tmp_path, monkeypatch):
    for known in ("_packages", "_folders"):  # other tests of this process have named files beside this one
        monkeypatch.setattr(f"robot_runtime.user_code.{known}", set())
    (tmp_path / "late.py").write_text("def robot(things):\n    return things['none']\n")
    function = load("late.py:robot")
    with pytest.raises(KeyError) as failed:
        function({})
    said = sentence(failed.value)
    assert said.startswith("your code failed:\nTraceback")
    assert 'late.py", line 2, in robot' in said
    assert "test_load_object.py" not in said


def test_a_function_makes_the_object_and_what_is_none_is_refused(tmp_path):
    (tmp_path / "maker.py").write_text(
        "def good(): return 1.5\ndef bad(): return 'x'\ndef broken(): raise OSError('no arm')\nother = 'x'\n"
    )

    def made(name):
        is_one = lambda found: isinstance(found, float)  # noqa: E731
        return load_made(f"maker.py:{name}", group=GROUP, what="robot", is_one=is_one)

    assert made("good") == 1.5
    with pytest.raises(InvalidValueError, match=r"maker\.py:bad\(\) made no robot but a str"):
        made("bad")
    with pytest.raises(InvalidValueError, match=r"maker\.py:other is no robot but a str"):
        made("other")
    with pytest.raises(UserCodeError, match=r"maker\.py:broken\(\) failed(.|\n)*OSError: no arm"):
        made("broken")
