"""Chunks out of torch's CUDA graphs (`mode="reduce-overhead"`), by any number of threads: `one_chunk`.

torch takes every call of a compiled function for a step of its own, at which what the earlier ones returned
may be overwritten. A chunk is many calls, and all of them need what the first returned:

    step begins │ pictures and words ─► prefix ─► step, step, ..., step │ step begins

It counts these steps for the whole process, so chunks of several policies have to take turns, as they do on
the GPU. And it keeps graphs for each thread, but only for the thread that first compiled anything (pytorch
issue 123177): a policy that takes over from another has a thread of its own.
"""

import ctypes
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock, RLock
from typing import Any

import torch

_TURN = RLock()


@contextmanager
def one_chunk(*, is_compiled: bool = True, rounds: bool = False) -> Iterator[None]:
    """Around all calls for a chunk, from its observation to its last row.

    is_compiled: whether there are graphs. rounds: whether products in float32 may go by way of TF32; torch
    counts that too for the whole process.
    """
    with _TURN, float32_products("high") if rounds else nullcontext():
        if is_compiled:
            _let_this_thread_have_graphs()
            torch.compiler.cudagraph_mark_step_begin()
        yield


@contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """While it lasts, a GPU's products of float32 have what torch calls this precision; a CPU's keep theirs.

    torch's compiler asks for the precision of all devices, so the GPU's alone cannot be set.
    """
    backends: Any = torch.backends  # whose annotations do not name `matmul`
    gpu, cpu = backends.cuda.matmul, backends.mkldnn.matmul
    before, of_gpu, of_cpu = _precision(), gpu.fp32_precision, cpu.fp32_precision
    torch.set_float32_matmul_precision(precision)
    cpu.fp32_precision = of_cpu
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        gpu.fp32_precision, cpu.fp32_precision = of_gpu, of_cpu


def _precision() -> str:
    """What is set. torch has no answer where somebody has set a GPU's alone: its compiler does, which puts
    that back when it has traced, whatever another thread has set meanwhile.
    """
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest"


def _let_this_thread_have_graphs() -> None:
    from torch._inductor import cudagraph_trees

    if torch._C._is_key_in_tls("tree_manager_containers"):
        return
    for name, value in (("tree_manager_containers", {}), ("tree_manager_locks", defaultdict(Lock))):
        setattr(cudagraph_trees.local, name, value)
        torch._C._stash_obj_in_tls(name, value)
        # It counts no reference of its own, but drops one when the thread ends: what was freed then is freed
        # again, and the process dies in some later garbage collection.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
