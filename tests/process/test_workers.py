"""What the worker processes of an evaluation set, and what they leave as torch has it."""

import pytest
import torch

from robot_runtime.core.method.table import METHODS
from robot_runtime.evaluation.workers import worker_pool
from sim.episodes.evaluation import EvaluationConfig, try_out


def settings_after_an_answer() -> tuple[int, str, str]:
    try_out(EvaluationConfig(policy="track", task="track", method=METHODS["time-aligned"], episodes=1))
    precision = torch.backends.mkldnn.matmul.fp32_precision
    return torch.get_num_threads(), torch.get_float32_matmul_precision(), precision


@pytest.mark.long
def test_a_worker_has_the_threads_asked_for_and_products_in_full_float32(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with worker_pool(1, threads=1) as pool:
        assert pool.apply(settings_after_an_answer) == (1, "highest", "none")
