"""Takes pictures of a page in a real browser, as in `docs/_static`.

robot-runtime run --task fetch --policy HOST:PORT --page &
python -m scripts.look_at_page --url http://127.0.0.1:8080/ --output page.png
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from robot_runtime.cli.options import Maybe, PictureFile, Pixels, Within
from robot_runtime.page.picture import picture_of
from scripts.harness import run_script


@dataclass(frozen=True, kw_only=True)
class Look:
    """Open a page in Debian's chromium and take a picture of it."""

    url: str = "http://127.0.0.1:8080/"
    """URL to open."""
    output: PictureFile
    """File for the picture."""
    size: tuple[Pixels, Pixels] = (1400, 900)
    """Width and height of the window [pixels]."""
    scheme: Literal["dark", "light"] = "dark"
    """Colour scheme."""
    wait_s: Annotated[float, Within(0, 600)] = 10.0
    """How long to look before the picture is taken; a machine without a GPU draws the robot slowly [s]."""
    at_s: Annotated[Maybe[float], Within(0, 1e6)] = None
    """Time of a recorded run to show [s]."""

    def main(self) -> int:
        wrong = picture_of(
            self.url, self.output, size=self.size, scheme=self.scheme, at_s=self.at_s, wait_s=self.wait_s
        )
        for line in wrong:
            print(f"the page says: {line}")
        return 1 if wrong else 0


if __name__ == "__main__":
    run_script(Look, Look.main, description=__doc__)
