"""The table of joined clocks."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from scripts.tables.shared import result, table


def clocks() -> str:
    """How far off one device's clock is by the other's, anywhere in a session."""
    cases = result("capture-clocks")["cases"]
    lines = [
        [
            name,
            str(each["sessions"]),
            *(f"{each[key]:.2f}" for key in ("median_ms", "p95_ms", "max_ms")),
            f"{each['sigma_ms']:.2f}",
            f"{each['nees']:.2f}",
            f"{each['least_correlation']:.3f}",
        ]
        for name, each in cases.items()
    ]
    head = ["simulated sessions", "number", "median [ms]", "p95 [ms]", "worst [ms]"]
    head += ["sigma [ms]", "NEES", "least correlation"]
    return table(head, lines)


TABLES: Mapping[str, Callable[[], str]] = MappingProxyType({"capture-clocks": clocks})
