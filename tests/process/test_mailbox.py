import select
from threading import Thread

from robot_runtime.mailbox import Doorbell, Mailbox


def test_the_newest_value_wins_and_is_taken_once():
    box: Mailbox[str] = Mailbox()
    assert box.put("old") is None
    assert box.put("new") == "old"
    letter = box.take()
    assert (letter.sequence, letter.value) == (1, "new")
    assert box.take() is None


def test_looking_leaves_the_value():
    box: Mailbox[int] = Mailbox()
    box.put(5)
    assert box.peek() == box.peek()
    assert box.take().value == 5
    assert box.peek() is None


def test_a_bell_wakes_a_sleeper_and_rings_until_cleared():
    bell = Doorbell()
    ringer = Thread(target=lambda: [bell.ring() for _ in range(100_000)])
    ringer.start()
    assert select.select([bell], [], [], 10.0)[0] == [bell]
    ringer.join()
    while select.select([bell], [], [], 0.0)[0]:
        bell.clear()
    bell.ring()
    assert select.select([bell], [], [], 0.0)[0] == [bell]
    bell.close()
    bell.ring()
