"""One thread for torch, as in the policies' tests, and one checkpoint for all."""

from collections.abc import Iterator

import pytest
import torch

from policies.flow.checkpoint import Checkpoint, load


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def track_checkpoint() -> Checkpoint:
    return load("track")
