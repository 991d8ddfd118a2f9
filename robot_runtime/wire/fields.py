"""Types of the fields on the wire; msgspec checks them while it decodes."""

from typing import Annotated

from msgspec import Meta

INT64_MAX = 2**63 - 1

Int64 = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
Count = Annotated[int, Meta(ge=0, lt=2**31)]
Text = Annotated[str, Meta(max_length=4096)]
MAX_MAGNITUDE = 1e9
"""Largest number in a request, whatever its unit; beyond it a policy's float32 nears overflow."""
Number = Annotated[float, Meta(ge=-MAX_MAGNITUDE, le=MAX_MAGNITUDE)]
"""A bounded number; NaN fails the comparison, too."""

MAX_REASON = 2000
"""Characters of a refusal or an error."""


def printable(text: str) -> str:
    """Make foreign text safe for a log or terminal: one line, no control characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
