from pathlib import Path

import pytest

from policies.flow.checkpoint import load
from policies.flow.policy import FlowPolicy
from tests.made_once import made_once
from tests.policies.toy import train_toy


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "toy", lambda folder: train_toy(folder, steps=800))


@pytest.fixture(scope="session")
def toy_policy(toy_folder: Path) -> FlowPolicy:
    return FlowPolicy(load(toy_folder))
