"""Test settings shared by all packages."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.checked import check_package
from tests.examples import FEW, FULL
from tests.process_state import changes, process_state

check_package("robot_runtime.core")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of torch: small networks gain nothing from more


@pytest.fixture(scope="module", autouse=True)
def process_is_left_as_it_was() -> Iterator[None]:
    """A test file that changes a setting of the whole process fails: it would alter every later file."""
    before = process_state()
    yield
    if changed := changes(before, process_state()):
        os.sched_setscheduler(0, before["scheduling policy"], os.sched_param(before["scheduling priority"]))
        pytest.fail("this file changed settings of the whole process:\n" + "\n".join(changed), pytrace=False)


settings.register_profile(
    "default",
    max_examples=FEW,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long", settings.get_profile("default"), max_examples=FULL
)  # HYPOTHESIS_PROFILE=long: of scripts/test --long
settings.register_profile(
    "thorough", settings.get_profile("default"), max_examples=1000, derandomize=False
)  # HYPOTHESIS_PROFILE=thorough: others every time, for those who change what is tested
settings.register_profile(
    "quick", settings.get_profile("default"), max_examples=5
)  # HYPOTHESIS_PROFILE=quick: a first look while writing
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


ALLOWED_SKIPS = (
    "needs a GPU",
    "root may write everywhere",  # as which CI runs
    "this machine has no IPv6",
    "descriptors are allowed here",
)
"""Words in the reasons of tests that a machine of ours may leave out."""


LONGEST = (
    "tests/sim/test_recording.py",
    "tests/sim/test_evaluate.py",
    "tests/cli/test_capture_sample.py",
    "tests/calibration/test_board_seen.py",
    "tests/policies/test_lerobot_random.py",
    "tests/test_arrows.py",
    "tests/cli/test_demo_capture.py",
    "tests/sim/test_household.py",
    "tests/process/test_interrupts.py",
    "tests/process/test_cameras.py",
    "tests/process/test_demo.py",
    "tests/process/test_slow_link.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest first, so that no worker is left with one when the others have ended."""
    places = {path: place for place, path in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONGEST)))


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "fail tests that are skipped for a reason that is not listed: nothing is missing on this machine"
    parser.addoption("--no-skips", action="store_true", help=words)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    return _failed_if_skipped((yield), item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    return _failed_if_skipped((yield), collector.config)


def _failed_if_skipped(report, config: pytest.Config):
    if config.getoption("--no-skips") and report.skipped and not hasattr(report, "wasxfail"):
        _, _, reason = report.longrepr
        if not any(words in reason for words in ALLOWED_SKIPS):
            report.outcome, report.longrepr = "failed", f"{reason}: this machine should have it"
    return report
