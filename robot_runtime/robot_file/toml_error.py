"""What a person wrote where a file is no TOML: `the_line`."""

import re
import tomllib

_PLACE = re.compile(r"at line (\d+)")
_ASSIGNED = re.compile(r"\s*([\w.\-]+)\s*=\s*([^\s\"'\[{#][^\"#]*)")


def the_line(text: str, error: tomllib.TOMLDecodeError) -> str:
    """The line that the error speaks of, and what is usually wrong with it; empty if it names none."""
    place = _PLACE.search(str(error))
    if place is None:
        return ""
    line = text.splitlines()[int(place[1]) - 1]
    found = _ASSIGNED.match(line)
    mend = "" if found is None else f'; strings need quotes: {found[1]} = "{found[2].strip()}"'
    return f"\n    {line.strip()}{mend}"
