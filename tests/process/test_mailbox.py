import os
import select
from threading import Event, Thread

import pytest

from robot_runtime.mailbox import Doorbell, Mailbox


def test_the_newest_value_wins_and_is_taken_once():
    box: Mailbox[str] = Mailbox()
    assert box.put("old") is None
    assert box.put("new") == "old"
    assert box.take() == "new"
    assert box.take() is None


def test_looking_leaves_the_value():
    box: Mailbox[int] = Mailbox()
    box.put(5)
    assert box.peek() == box.peek()
    assert box.take() == 5
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


def test_a_bell_that_is_closed_while_others_ring_writes_into_nothing_else():
    """The numbers of its files go to the next that is opened: a pipe here, a robot's socket elsewhere."""
    errors: list[Exception] = []

    def ring_on(bell: Doorbell, stop: Event) -> None:
        try:
            while not stop.is_set():
                bell.ring()
        except Exception as error:
            errors.append(error)

    for _ in range(300):
        bell, stop = Doorbell(), Event()
        thread = Thread(target=ring_on, args=(bell, stop))
        thread.start()
        bell.close()
        read_fd, write_fd = os.pipe()
        stop.set()
        thread.join()
        os.set_blocking(read_fd, False)
        with pytest.raises(BlockingIOError):  # nobody wrote
            os.read(read_fd, 1)
        os.close(read_fd)
        os.close(write_fd)
    assert errors == []
