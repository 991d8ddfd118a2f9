"""The process of a run's page, `python -m robot_runtime.cli.page_child`: `page.process` starts it."""

import logging
import os
import sys

import msgspec


def main() -> int:
    """Show a run until standard input ends; returns the exit code."""
    from robot_runtime.cli.errors import sentence
    from robot_runtime.cli.robot_model import body_named
    from robot_runtime.errors import InvalidValueError
    from robot_runtime.page.child import Told, serve_live

    logging.disable(logging.CRITICAL)
    told = msgspec.json.decode(sys.stdin.readline(), type=Told)
    said, sys.stdout = sys.stdout, sys.stderr  # libraries print
    try:
        try:
            body = body_named(told.model, told.columns)
        except InvalidValueError as error:
            print(f"the robot is shown without its model: {error}", file=sys.stderr)
            body = None
        serve_live(told, body, said, until=lambda: [*sys.stdin].clear())
    except BaseException as error:
        print(sentence(error) or f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # at once: threads of viser's pool would be waited for
