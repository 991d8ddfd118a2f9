from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.robot.counted_log import MAX_KINDS, CountedLog


def heard() -> tuple[CountedLog, list[str]]:
    lines: list[str] = []
    return CountedLog(lambda text, is_routine: lines.append(text)), lines


def test_the_first_of_a_kind_is_said_then_every_tenfold_and_the_sum_at_the_end():
    notices, lines = heard()
    for i in range(250):
        notices.note("late", f"answer {i} is late")
    assert lines == [
        "answer 0 is late",
        "answer 9 is late (10 times so far)",
        "answer 99 is late (100 times so far)",
    ]
    notices.sum_up()
    assert lines[-1] == "250 times: late"


def test_what_was_counted_elsewhere_begins_at_the_first_however_many_there_are():
    notices, lines = heard()
    for count in (3, 4, 12, 13):
        notices.counted("stall", count, "the loop stalled")
    assert lines == ["the loop stalled", "the loop stalled (12 times so far)"]
    notices.sum_up()
    assert lines[-1] == "13 times: stall"


@given(st.lists(st.text(max_size=8), max_size=400))
def test_a_peer_that_never_says_the_same_twice_fills_neither_memory_nor_log(texts):
    notices, lines = heard()
    for i, text in enumerate(texts):
        notices.note(f"{text}{i}", text)
    assert len(notices.counts) <= MAX_KINDS + 1
    assert len(lines) <= MAX_KINDS + 3
    assert sum(notices.counts.values()) == len(texts)
