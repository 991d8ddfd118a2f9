"""Verdicts on results: whether to trust them, and if not, what is wrong and what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One finding about a result."""

    name: str
    """Short and stable name, for programs and tables: `frontal-views`."""
    what: str
    """What is wrong, with its numbers, in a sentence."""
    do: str
    """What to do about it, in a sentence."""
    is_fatal: bool = True
    """Whether it refuses the result; otherwise it is a warning."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_fatal", bool(self.is_fatal))  # JSON cannot hold numpy's bool

    def __str__(self) -> str:
        return f"{self.what} {self.do}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether to trust a result; `Verdict.of(reasons)` refuses it if one is fatal."""

    ok: bool = True
    reasons: tuple[Reason, ...] = ()

    @classmethod
    def of(cls, reasons: Sequence[Reason]) -> Self:
        """Good unless one of them is fatal."""
        return cls(ok=not any(reason.is_fatal for reason in reasons), reasons=tuple(reasons))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its reasons."""
        return tuple(reason.name for reason in self.reasons)

    def __str__(self) -> str:
        lines = [f"  {'-' if each.is_fatal else '~'} {each.name}: {each}" for each in self.reasons]
        return "\n".join(["usable" if self.ok else "NOT USABLE", *lines])

    def to_dict(self) -> dict[str, Any]:
        reasons = [
            {"name": each.name, "what": each.what, "do": each.do, "is_fatal": each.is_fatal}
            for each in self.reasons
        ]
        return {"ok": self.ok, "reasons": reasons}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(ok=bool(data["ok"]), reasons=tuple(Reason(**each) for each in data["reasons"]))
