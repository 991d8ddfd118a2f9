"""Types of the fields on the wire; msgspec checks them while it decodes."""

import sys
from typing import Annotated

from msgspec import Meta, Struct

INT64_MAX = 2**63 - 1

Int64 = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
Count = Annotated[int, Meta(ge=0, lt=2**31)]
Text = Annotated[str, Meta(max_length=4096)]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""Neither NaN nor infinite: NaN is not above the lowest number either."""

MAX_REASON = 2000
"""Characters of a refusal or an error."""


def printable(text: str) -> str:
    """Foreign text as it may stand in a log or on a terminal: one line, no control characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class Fields(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag=True):
    """A message in the header: a map with its type and its fields. Holds no reference cycles."""
