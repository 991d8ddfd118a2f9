"""`ArmGuide`: instructions for the operator who moves an arm while views are taken."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from calibration.commands.calibrate.live_guide import LiveGuide
from calibration.commands.calibrate.live_shots import Glance
from calibration.commands.calibrate.shots import Shot, ShotsFolder
from calibration.commands.calibrate.shown import guide_of_shots

if TYPE_CHECKING:
    import pinocchio as pin

BEGIN = "Move the arm, and hold it still at each pose for half a second; Ctrl-C ends it."


class ArmGuide:
    """Counts the views of one arm, and shows what is missing on the terminal and on the page."""

    def __init__(self, guide: LiveGuide) -> None:
        self._live = guide
        self._poses: list[pin.SE3] = []

    def look(self, glance: Glance) -> None:
        """Show the current image."""
        advice = self._lacking()
        go_on = advice[0] if advice else "enough to be trusted; more poses make it more certain"
        shown = guide_of_shots(
            self._live.guide,
            self._poses,
            glance.corners,
            do=glance.do or (go_on if self._poses else BEGIN),
            problem=glance.problem,
        )
        self._live.show(shown, glance.picture)

    def taken(self, shots: Iterator[Shot], folder: ShotsFolder | None, *, num: int) -> Iterator[Shot]:
        """Pass shots on, and print for each what is missing next.

        folder: saves them; None: they are not saved. num: how many are wanted.
        """
        self._live.show(replace(self._live.guide, do=BEGIN, num_wanted=num))
        for shot in shots:
            self._poses.append(shot.X_AE)
            if folder is not None:
                folder.add(shot)
            advice = self._lacking()
            print(
                f"\a{shot.name} taken, {len(self._poses)} so far{': ' if advice else ''}"
                f"{'; '.join(advice[:2])}"
            )
            self.look(Glance())
            yield shot

    def _lacking(self) -> list[str]:
        from calibration.chain_verdict import lacking

        return lacking(self._poses)
