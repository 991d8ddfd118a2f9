"""What the pages promise besides commands: figures, files, links, and one subject each."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import robot_runtime

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MOST_LINES = {"README.md": 200}
NAMES = [str(path.relative_to(ROOT)) for path in PAGES if "_build" not in path.parts]


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def test_every_table_is_what_its_figures_say():
    checked = [sys.executable, "-m", "scripts.tables.docs_tables", "--check"]
    done = subprocess.run(checked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", NAMES)
def test_a_page_has_one_subject(page):
    assert len(text_of(page).splitlines()) <= MOST_LINES.get(page, 300)


@pytest.mark.parametrize("page", NAMES)
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", text_of(page))
    here = (ROOT / page).parent
    assert [link for link in links if "://" not in link and not (here / link).exists()] == []


@pytest.mark.parametrize("page", [name for name in NAMES if name != "CHANGELOG.md"])
def test_every_file_that_is_named_is_there(page):
    named = re.findall(r"`(?:python )?((?:[\w-]+/)+(?:[\w-]+\.(?:py|json|md))?)(?: [^`]*)?`", text_of(page))
    folders = (ROOT, ROOT / "robot_runtime")
    made = ("outputs/", "keys/")
    assert [
        name
        for name in named
        if not name.startswith(made) and not any((folder / name).exists() for folder in folders)
    ] == []


def test_every_public_name_is_in_the_reference():
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))
    named = re.findall(
        r"^\.\. auto\w+:: robot_runtime\.(\w+)|^\.\. data:: robot_runtime\.(\w+)", pages, re.MULTILINE
    )
    assert sorted(filter(None, (name for pair in named for name in pair))) == sorted(robot_runtime.__all__)
