"""Test settings shared by all packages."""

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.checked import check_package

check_package("robot_runtime.core")


@pytest.fixture(autouse=True)
def logging_is_given_back() -> Iterator[None]:
    """A library that sets the root logger up for itself (LeRobot's commands do) changes no later test."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture(autouse=True)
def the_scheduler_is_left_as_it_is() -> Iterator[None]:
    """A thread of real time that a library has made of this one keeps all later tests, and whatever they
    start, ahead of everything else: those beside them are not let run for seconds."""
    before = os.sched_getscheduler(0)
    yield
    after = os.sched_getscheduler(0)
    if after != before:
        os.sched_setscheduler(0, before, os.sched_param(0))
    assert after == before, "the test's thread runs under another scheduler than before"


settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", settings.get_profile("default"), max_examples=1000, derandomize=False
)  # HYPOTHESIS_PROFILE=thorough: others every time, for whoever changes what is tested
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
