"""One checkpoint for all tests of the peers."""

import pytest

from policies.flow.checkpoint import Checkpoint, load


@pytest.fixture(scope="session")
def track_checkpoint() -> Checkpoint:
    return load("track")
