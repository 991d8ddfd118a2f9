from pathlib import Path

import pytest

from policies.flow.checkpoint import load
from policies.flow.policy import FlowPolicy
from tests.policies.toy import train_toy


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_toy(tmp_path_factory.mktemp("checkpoints") / "toy", steps=400)


@pytest.fixture(scope="session")
def toy_policy(toy_folder: Path) -> FlowPolicy:
    return FlowPolicy(load(toy_folder))
