"""Process of a page, `python -m robot_runtime.page`, which `page.process` starts."""

import logging
import os
import sys
from typing import TYPE_CHECKING, TextIO

import msgspec

if TYPE_CHECKING:
    from robot_runtime.page.child import PageConfig


def main() -> int:
    """Show a run or a calibration until standard input ends; return the exit code."""
    from robot_runtime.error_text import sentence
    from robot_runtime.page.child import PageConfig, serve_guide
    from robot_runtime.page.guide import GuidePageConfig

    logging.disable(logging.CRITICAL)
    config: PageConfig | GuidePageConfig = msgspec.json.decode(
        sys.stdin.buffer.readline(), type=PageConfig | GuidePageConfig
    )
    output, sys.stdout = sys.stdout, sys.stderr  # libraries print
    try:
        match config:
            case PageConfig():
                _serve_run(config, output)
            case GuidePageConfig():
                serve_guide(config, sys.stdin.buffer, output)
    except BaseException as error:
        print(sentence(error) or f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _serve_run(config: "PageConfig", output: TextIO) -> None:
    from robot_runtime.errors import InvalidValueError
    from robot_runtime.page.child import serve_live
    from robot_runtime.page.robot_model import body_named

    try:
        body = body_named(config.model, config.columns)
    except InvalidValueError as error:
        print(f"the robot is shown without its model: {error}", file=sys.stderr)
        body = None
    serve_live(config, body, output, until=lambda: [*sys.stdin.buffer].clear())


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # skips the wait for the threads of viser's pool
