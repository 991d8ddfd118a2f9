"""Number of hypothesis examples of a property: few in `scripts/test`, all in `scripts/test --long`."""

from typing import Any

from hypothesis import settings

FULL = 100
"""Examples of a property that asks for no number of its own, in the profile `long`."""
FEW = 25
"""The same in the profile `default`."""


def examples(number: int, **options: Any) -> settings:
    """Settings for a property of which `scripts/test --long` tries `number` examples."""
    share = settings.default.max_examples / FULL
    return settings(max_examples=max(2, min(number, round(number * share) + 2)), **options)
