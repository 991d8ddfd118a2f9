"""`LiveGuide`: instructions for the operator of a live calibration, on the terminal and on a page.

views, problems ─► Guide ─┬► what to do next, a line on the terminal
                          └► --page: all of it, with the image
Ctrl-C ─► stops taking views and computes the result; again: ends the command
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from calibration.commands.calibrate.result import rows_of
from robot_runtime.cli.options import need
from robot_runtime.cli.signals import own_handler
from robot_runtime.error_text import sentence
from robot_runtime.errors import InvalidValueError
from robot_runtime.page.guide import End, Guide, Judged
from robot_runtime.signals import Ended

if TYPE_CHECKING:
    from robot_runtime.page.guide_page import GuidePage


class LiveGuide(AbstractContextManager["LiveGuide"]):
    """Context manager in which Ctrl-C stops the taking of views."""

    def __init__(self, title: str, page: Sequence[str] | None, *, also: Sequence[int] = ()) -> None:
        """
        title: the command. page: value of --page; None: no page.
        also: signals that stop the taking as Ctrl-C does.
        """
        self.guide = Guide(title=title)
        """Current content of the page."""
        self.is_stopped = False
        """Whether to stop taking views."""
        self._address, self._also, self._last = page, also, ""
        self._page: GuidePage | None = None
        self._opened = ExitStack()

    def __enter__(self) -> "LiveGuide":
        with ExitStack() as opened:
            opened.enter_context(own_handler(self._stop, also=self._also))
            if self._address is not None:
                from robot_runtime.commands.live_page import open_guide_page

                self._page = opened.enter_context(open_guide_page(self._address, say=_print))
            self._opened = opened.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.show(replace(self.guide, end=End(text=_why(error), is_good=False)))
        self._opened.close()

    def say(self, line: str) -> None:
        """Print a line on the terminal, unless it repeats the last one."""
        if line != self._last:
            _print(line)
        self._last = line

    def show(self, guide: Guide, picture: np.ndarray | None = None) -> None:
        """Show a guide on the page. picture: (h, w, 3) RGB uint8, the image that the corners belong to."""
        self.guide = guide
        if self._page is not None:
            self._page.show(guide, picture)

    def compute(self) -> None:
        """Show that the result is being computed; another Ctrl-C ends the command."""
        self.is_stopped = True
        doing = "that is all: the result is being computed"
        self.show(replace(self.guide, do=doing, problem="", corners=()))

    def judge(self, found: Any, rows: Mapping[str, str]) -> None:
        """Show the result, as `result.keep` prints it."""
        verdict = found.verdict
        reasons = tuple(
            Judged(name=each.name, text=str(each), is_fatal=each.is_fatal) for each in verdict.reasons
        )
        words = "usable" if verdict.ok else "NOT USABLE"
        shown = tuple(rows_of(found, rows))
        end = End(text=words, is_good=verdict.ok, reasons=reasons, rows=shown)
        self.show(replace(self.guide, do="", problem="", end=end))

    def _stop(self, number: int) -> None:
        if self.is_stopped:
            raise Ended(number)
        self.is_stopped = True


def refuse_page(page: Sequence[str] | None) -> None:
    """Raise InvalidValueError if a page is requested for images that were taken before."""
    if page is not None:
        raise InvalidValueError("--page shows what is seen now, and these pictures were taken before")


def need_page(page: Sequence[str] | None) -> None:
    """Raise ExtraMissingError if a page is requested and the packages for it are missing."""
    if page is not None:
        need("websockets", extras=("calibration", "page"))


def _print(line: str) -> None:
    print(line, flush=True)


def _why(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return sentence(error) or f"{type(error).__name__}: {error}"
