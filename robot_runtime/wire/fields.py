"""Types of the fields on the wire; msgspec checks them while it decodes."""

from typing import Annotated

from msgspec import Meta

INT64_MAX = 2**63 - 1

Int64 = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
Count = Annotated[int, Meta(ge=0, lt=2**31)]
Text = Annotated[str, Meta(max_length=4096)]
MAX_MAGNITUDE = 1e9
"""Of a number in a request, whatever its unit: beyond, a policy's float32 is not far from its end."""
Number = Annotated[float, Meta(ge=-MAX_MAGNITUDE, le=MAX_MAGNITUDE)]
"""Nor NaN: it is not above the lowest number either."""

MAX_REASON = 2000
"""Characters of a refusal or an error."""


def printable(text: str) -> str:
    """Foreign text as it may stand in a log or on a terminal: one line, no control characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
