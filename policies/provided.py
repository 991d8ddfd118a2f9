"""What commands of `robot_runtime` use of policies; see `robot_runtime.providers`."""

from policies.correction import head_for

__all__ = ["head_for"]
