"""A folder is there whole or not at all, and nothing of those that failed is left beside it."""

import os

import pytest

from robot_runtime.staging import place_beside, whole_folder


def test_a_folder_gets_its_name_when_all_of_it_is_written(tmp_path):
    with whole_folder(tmp_path / "deep" / "made") as place:
        place.mkdir()
        (place / "file").write_text("x")
        assert not (tmp_path / "deep" / "made").exists()
    assert (tmp_path / "deep" / "made" / "file").read_text() == "x"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["made"]


def test_nothing_is_left_of_a_folder_that_could_not_be_written(tmp_path):
    def write_half() -> None:
        with whole_folder(tmp_path / "made") as place:
            place.mkdir()
            (place / "file").write_text("x")
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        write_half()
    assert not list(tmp_path.iterdir())


def test_what_a_process_is_still_writing_stays_and_so_do_other_names(tmp_path):
    running, other = tmp_path / f".made.{os.getppid()}.unfinished", tmp_path / ".made.of.mine.unfinished"
    gone = tmp_path / ".made.4194305.unfinished"  # beyond all numbers of processes
    for each in (running, other, gone):
        each.mkdir()
    assert place_beside(tmp_path / "made").name == f".made.{os.getpid()}.unfinished"
    assert running.exists()
    assert other.exists()
    assert not gone.exists()
