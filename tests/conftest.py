"""Test settings shared by all packages."""

from hypothesis import HealthCheck, settings

from tests.checked import check_package

check_package("robot_runtime.core")

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")
