"""A screenshot of a page, by a headless browser: `picture_of`. Needs playwright and a chromium."""

import shutil
import time
from pathlib import Path

from robot_runtime.errors import RobotRuntimeError

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_MS = 180_000.0
"""A machine without a GPU draws the robot slowly."""


class NoBrowserError(RobotRuntimeError):
    """No browser is installed, or nothing to control it with."""


def picture_of(
    url: str,
    path: Path,
    *,
    size: tuple[int, int] = (1400, 900),
    scheme: str = "dark",
    at_s: float | None = None,
    wait_s: float = 10.0,
) -> list[str]:
    """Open a page, wait, and save a screenshot; returns the errors of the page's code.

    size: width and height of the window [pixels]. scheme: "dark" or "light".
    at_s: time to seek to first, in a recorded run [s]. wait_s: how long to wait [s].
    NoBrowserError: there is none.
    """
    found = next((each for name in BROWSERS if (each := shutil.which(name))), None)
    if found is None:
        raise NoBrowserError(f"no browser is here that could draw it: {', '.join(BROWSERS)}")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError as error:
        raise NoBrowserError("nothing is here to lead a browser with: pip install playwright") from error
    wrong: list[str] = []
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=found,
            args=["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"],
        )
        window = {"width": size[0], "height": size[1]}
        context = browser.new_context(viewport=window, color_scheme=scheme)  # type: ignore[arg-type]
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(url)
        if at_s is not None:
            page.wait_for_selector("#player:not([hidden])")
            page.evaluate(f"say({{order: 'Player', what: 'seek', t_s: {at_s}}})")
        time.sleep(wait_s)
        page.screenshot(path=path)
        browser.close()
    return wrong
