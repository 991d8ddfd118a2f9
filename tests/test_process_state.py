"""The fixture that fails a file for what it changed of the process finds it, and loads nothing for it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from tests.process_state import changes, process_state
from tests.source_tree import ROOT


@contextmanager
def precision_of_products() -> Iterator[None]:
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before


@contextmanager
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    yield
    torch.set_num_threads(before)


@contextmanager
def signal_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, lambda number, frame: None)
    yield
    signal.signal(signal.SIGHUP, before)


@contextmanager
def environment() -> Iterator[None]:
    os.environ["LEFT_BEHIND"] = "1"
    yield
    del os.environ["LEFT_BEHIND"]


@contextmanager
def scheduling_policy() -> Iterator[None]:
    before = os.sched_getscheduler(0)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    yield
    os.sched_setscheduler(0, before, os.sched_param(0))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (precision_of_products, "torch fp32_precision of mkldnn.matmul"),
        (threads, "torch threads"),
        (signal_handler, "signal handlers"),
        (environment, "environment"),
        (scheduling_policy, "scheduling policy"),
        (lambda: np.errstate(all="ignore"), "numpy error state"),
    ],
)
def test_a_changed_setting_is_named_and_one_given_back_is_not(change, name):
    before = process_state()
    with change():
        lines = changes(before, process_state())
    assert name in [line.partition(":")[0] for line in lines]
    assert changes(before, process_state()) == []


def test_of_the_environment_only_what_changed_is_named():
    before = process_state()
    with environment():
        (line,) = changes(before, process_state())
    assert line == "environment: {'LEFT_BEHIND': 'absent'} before, {'LEFT_BEHIND': '1'} after"


def test_looking_at_the_process_loads_no_torch():
    code = "import sys; import tests.process_state as s; s.process_state(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
