"""Functions of policies that commands of `robot_runtime` use; see `robot_runtime.providers`."""

from policies.correction import head_for

__all__ = ["head_for"]
