"""A result file states what made it, or `docs_tables --check` refuses it."""

import pytest

from scripts.tables import docs_tables
from scripts.tables.docs_tables import lacking, refused_results

HEAD = docs_tables._git("rev-parse", "HEAD")
MADE = {"command": "c", "commit": HEAD, "date": "d", "machine": "m", "seeds": None}


@pytest.mark.parametrize(
    ("result", "lacks"),
    [
        ({}, ["made_by"]),
        ({"made_by": MADE}, []),
        ({"made_by": MADE | {"seeds": [1, 2]}}, []),
        ({"made_by": {key: value for key, value in MADE.items() if key != "seeds"}}, ["seeds"]),
        ({"made_by": MADE | {"machine": None}}, ["machine"]),
        ({"made_by": MADE | {"commit": "0" * 40}}, ["a commit of this history"]),
        ({"rows": [{"made_by": MADE}, {"made_by": {}}]}, sorted(MADE)),
    ],
)
def test_what_a_result_file_lacks_is_named(result, lacks):
    assert lacking(result, has_history=True) == lacks


def test_a_clone_without_history_checks_no_commit():
    assert lacking({"made_by": MADE | {"commit": "0" * 40}}, has_history=False) == []


def test_a_file_that_lacks_something_and_a_name_that_lacks_nothing_are_refused(tmp_path, monkeypatch):
    (tmp_path / "new.json").write_text("{}")
    (tmp_path / "robots.json").write_text("{}")
    monkeypatch.setattr(docs_tables, "RESULTS", tmp_path)
    (sentence,) = refused_results()
    assert sentence.startswith("new.json lacks made_by; make it again")
