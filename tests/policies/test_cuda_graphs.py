"""What torch keeps of CUDA graphs, without a GPU: threads, and which calls belong together."""

import sys
from threading import Event, Thread

from torch._inductor import cudagraph_trees as trees

from policies.cuda_graphs import one_chunk


def in_a_thread(work) -> list:
    out = []

    def run() -> None:
        try:
            out.append(work())
        except BaseException as error:
            out.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join(10.0)
    return out


def graphs_of_this_thread() -> dict:
    return trees.get_obj(trees.local, "tree_manager_containers")


def test_a_thread_that_torch_does_not_know_gets_graphs_of_its_own():
    (error,) = in_a_thread(graphs_of_this_thread)
    assert isinstance(error, AssertionError), "torch has mended it: leave it to torch"

    def inside() -> tuple[dict, dict]:
        with one_chunk():
            first = graphs_of_this_thread()
        with one_chunk():
            return first, graphs_of_this_thread()

    ((first, second),) = in_a_thread(inside)
    assert first is second
    assert first is not graphs_of_this_thread()


def test_what_a_thread_lets_go_of_when_it_ends_it_had_hold_of():
    def holds() -> tuple[int, int]:
        with one_chunk():
            pass
        kept = trees.local
        return sys.getrefcount(kept.tree_manager_containers), sys.getrefcount(kept.tree_manager_locks)

    (counted,) = in_a_thread(holds)
    assert counted == (3, 3)  # the thread's, torch's, and the one that getrefcount was handed


def test_all_calls_of_a_chunk_are_one_step_and_the_next_chunk_is_another():
    generation = trees.CUDAGraphTreeManager.get_curr_generation
    with one_chunk():
        first = generation(), generation()
    with one_chunk():
        second = generation()
    assert first[0] == first[1] != second


def test_chunks_of_two_threads_take_turns():
    began, may_go_on, order = Event(), Event(), []

    def first() -> None:
        with one_chunk():
            began.set()
            may_go_on.wait(10.0)
            order.append("first ends")

    def second() -> None:
        with one_chunk():
            order.append("second begins")

    threads = [Thread(target=first), Thread(target=second)]
    threads[0].start()
    began.wait(10.0)
    threads[1].start()
    may_go_on.set()
    for thread in threads:
        thread.join(10.0)
    assert order == ["first ends", "second begins"]


def test_an_abandoned_chunk_does_not_keep_the_next_one_waiting():
    def rows():
        with one_chunk():
            yield 1
            yield 2

    kept = rows()
    assert next(kept) == 1
    with one_chunk():
        pass
    kept.close()
    assert in_a_thread(lambda: next(rows())) == [1]
