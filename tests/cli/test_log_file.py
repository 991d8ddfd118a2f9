"""What a demo says of its runs: all of it in a file, each kind of warning once on the screen."""

import logging

from robot_runtime.robot.counted_log import CountedLog
from sim.commands.log_file import logged_to

logger = logging.getLogger("robot_runtime.somewhere")


def say(text: str, is_routine: bool) -> None:
    logger.log(logging.INFO if is_routine else logging.WARNING, text)


def test_a_kind_is_summed_up_in_one_line_however_often_it_happened(tmp_path, caplog):
    caplog.set_level(logging.INFO, "robot_runtime")
    with logged_to(tmp_path / "log.txt") as log:
        notices = CountedLog(say)
        for i in range(12):
            notices.note("a tick came late", "a tick came late")
            notices.note("an answer was not used", f"answer {i} not used", is_routine=True)
        notices.sum_up()
        logger.warning("the server is lost")
        assert log.take() == ["a tick came late (12 times)", "the server is lost"]
        assert log.take() == []
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert lines[0].endswith("WARNING a tick came late")
    assert lines[-1].endswith("WARNING the server is lost")
    assert "12 times: an answer was not used" in "\n".join(lines)
    assert caplog.records == []  # nothing went to the screen


def test_afterwards_lines_go_where_they_went_before(tmp_path, caplog):
    with logged_to(tmp_path / "log.txt"):
        pass
    logger.warning("out again")
    assert [record.getMessage() for record in caplog.records] == ["out again"]
    assert (tmp_path / "log.txt").read_text() == ""
