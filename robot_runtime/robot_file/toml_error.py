"""Quotes the line where a file is no valid TOML: `the_line`."""

import re
import tomllib

_PLACE = re.compile(r"at line (\d+)")
_ASSIGNED = re.compile(r"\s*([\w.\-]+)\s*=\s*([^\s\"'\[{#][^\"#]*)")


def the_line(text: str, error: tomllib.TOMLDecodeError) -> str:
    """Return the line that the error names, with the usual fix; empty if it names none."""
    place = _PLACE.search(str(error))
    if place is None:
        return ""
    line = text.splitlines()[int(place[1]) - 1]
    found = _ASSIGNED.match(line)
    fix = "" if found is None else f'; strings need quotes: {found[1]} = "{found[2].strip()}"'
    return f"\n    {line.strip()}{fix}"
