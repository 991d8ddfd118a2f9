"""Position of numbers in a foreign observation: `Entry`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from robot_runtime.core.values.conventions import Linear
from robot_runtime.server.gateways.values import look_up, numbers_at


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of one entry, all or those from `start` to before `stop`; or several entries of one number."""

    key: str = ""
    names: tuple[str, ...] = ()
    start: int = 0
    stop: int | None = None
    scale: float | None = None
    offset: float | None = None

    def __post_init__(self) -> None:
        if bool(self.key) == bool(self.names) or self.start < 0:
            raise ValueError("an entry has either a key or names, and starts at 0 or later")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"an entry names one number twice, {', '.join(self.names)}")
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"an entry ends after it starts, got {self.start} to before {self.stop}")
        self.linear()

    def linear(self) -> Linear | None:
        """The unit that is declared here."""
        if self.scale is None and self.offset is None:
            return None
        scale = 1.0 if self.scale is None else self.scale
        return Linear(scale=scale, offset=self.offset or 0.0)

    @property
    def size(self) -> int | None:
        """How many numbers it has; None: as many as are sent."""
        if self.names:
            return len(self.names)
        return None if self.stop is None else self.stop - self.start

    @property
    def where(self) -> str:
        """Its name in errors."""
        return repr(self.key) if self.key else ", ".join(map(repr, self.names))

    def is_in(self, sent: Mapping[str, Any]) -> bool:
        """Whether all of it was sent."""
        return all(look_up(sent, key) is not None for key in self.names or (self.key,))

    def numbers(self, sent: Mapping[str, Any]) -> np.ndarray:
        """The numbers as they are sent; ValueError."""
        if self.names:
            one_each = [numbers_at(sent, name) for name in self.names]
            if any(len(n) != 1 for n in one_each):
                raise ValueError(f"{self.where} are one number each")
            return np.concatenate(one_each)
        numbers = numbers_at(sent, self.key)
        if (self.stop or 0) > len(numbers):
            raise ValueError(f"{self.key!r} has {len(numbers)} numbers, {self.stop} are needed")
        return numbers[self.start : self.stop]
