"""The garbage collector of a process that serves: what it goes through while robots are answered."""

import gc
import weakref

from robot_runtime.cli.serve import _replace_all, short_collections


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_was_there_before_robots_came_is_not_gone_through_again_and_new_cycles_are_freed():
    old = Node()
    with short_collections():
        assert gc.get_freeze_count() > 1000
        assert not any(found is old for found in gc.get_objects())
        new = Node()
        gone = weakref.ref(new)
        del new
        gc.collect()
        assert gone() is None
    assert any(found is old for found in gc.get_objects())


def test_loading_policies_anew_lets_what_they_replace_be_freed():
    old = Node()
    gone = weakref.ref(old)
    with short_collections():
        del old
        gc.collect()
        assert gone() is not None
        _replace_all(None, [], [])
        gc.collect()
        assert gone() is None
