"""Test settings shared by all packages."""

import os

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
