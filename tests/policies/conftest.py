from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from policies.flow.checkpoint import load
from policies.flow.policy import FlowPolicy
from tests.made_once import made_once
from tests.policies.toy import train_toy


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks are no faster on two cores, and much slower if somebody else uses one of them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "toy", lambda folder: train_toy(folder, steps=800))


@pytest.fixture(scope="session")
def toy_policy(toy_folder: Path) -> FlowPolicy:
    return FlowPolicy(load(toy_folder))
