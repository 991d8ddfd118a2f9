"""Results of checks: `Finding`, for an episode or for the whole dataset, and `Report`."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Severity(IntEnum):
    """Consequence of a finding for training."""

    NOTE = 0
    """Worth knowing."""
    DOUBTFUL = 1
    """A person should look at it."""
    UNUSABLE = 2
    """Training would learn something wrong, or the data are unreadable."""


WORDS = {Severity.NOTE: "good", Severity.DOUBTFUL: "doubtful", Severity.UNUSABLE: "unusable"}


@dataclass(frozen=True)
class Finding:
    """One fault, in words."""

    check: str
    """Name of the check: rows, time, pictures, finite, trainable, frozen, jump, stale, gripper, dead, lag,
    limits."""
    severity: Severity
    text: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on one episode."""

    episode: int
    length: int
    """Number of frames."""
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def severity(self) -> Severity:
        return worst(self.findings)

    @property
    def word(self) -> str:
        """good, doubtful or unusable."""
        return WORDS[self.severity]

    @property
    def reason(self) -> str:
        """The worst findings; empty if there are none."""
        bad = [finding for finding in self.findings if finding.severity is self.severity]
        return "; ".join(finding.text for finding in bad)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report on a dataset."""

    findings: tuple[Finding, ...]
    """Findings for the dataset as a whole."""
    verdicts: tuple[Verdict, ...]
    fps: float

    @property
    def is_usable(self) -> bool:
        """Whether neither an episode nor the whole is unusable."""
        return max([worst(self.findings), *(v.severity for v in self.verdicts)]) < Severity.UNUSABLE

    def episodes(self, word: str) -> list[int]:
        """Episodes that are good, doubtful or unusable."""
        return [verdict.episode for verdict in self.verdicts if verdict.word == word]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "fps": self.fps,
            "is_usable": self.is_usable,
            "episodes": {word: len(self.episodes(word)) for word in WORDS.values()},
            "findings": [_plain(finding) for finding in self.findings],
            "verdicts": [
                {
                    "episode": verdict.episode,
                    "frames": verdict.length,
                    "seconds": round(verdict.seconds, 3),
                    "verdict": verdict.word,
                    "findings": [_plain(finding) for finding in verdict.findings],
                }
                for verdict in self.verdicts
            ],
        }


def worst(findings: Iterable[Finding]) -> Severity:
    """The worst severity; NOTE if there are none."""
    return max((finding.severity for finding in findings), default=Severity.NOTE)


def _plain(finding: Finding) -> dict[str, str]:
    return {"check": finding.check, "severity": finding.severity.name.lower(), "text": finding.text}
