"""Chunks from torch's CUDA graphs (`mode="reduce-overhead"`), by any number of threads: `one_chunk`.

torch treats every call of a compiled function as a new step, which may overwrite the outputs of earlier
calls. A chunk is many calls, and all of them need the output of the first:

    step begins │ images and words ─► prefix ─► step, step, ..., step │ step begins

Steps are counted per process, so chunks of several policies have to take turns, as they do on the GPU. Graphs
are kept per thread, but only for the thread that compiled first (pytorch issue 123177), and a policy that
takes over from another runs in a thread of its own.
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
    """A context around all calls for a chunk, from its observation to its last row.

    is_compiled: whether there are graphs. rounds: whether float32 products may use TF32, which torch also
    sets per process.
    """
    with _TURN, float32_products("high") if rounds else nullcontext():
        if is_compiled:
            _let_this_thread_have_graphs()
            torch.compiler.cudagraph_mark_step_begin()
        yield


@contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """A context in which a GPU multiplies float32 at this torch precision; a CPU keeps its own.

    torch's compiler queries the precision of all devices, so it cannot be set for the GPU alone.
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
    """The precision in force. torch raises where only the GPU's has been set. Its compiler does that: after
    tracing it restores the GPU's, whatever another thread has set meanwhile.
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
        # torch takes no reference here but drops one when the thread ends: without this one the object would
        # be freed twice, and the process would die in some later garbage collection.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
