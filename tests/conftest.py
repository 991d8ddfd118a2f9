"""Test settings shared by all packages."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.checked import check_package

check_package("robot_runtime.core")


settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
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
