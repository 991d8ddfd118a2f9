"""`--page` of a run: `open_page`."""

import sys
from collections.abc import Callable, Sequence

from robot_runtime.page.run_page import RunPage
from robot_runtime.robot.run import Session
from robot_runtime.transport.address import host_and_port

COMMAND = (sys.executable, "-P", "-m", "robot_runtime.cli.page_child")


def open_page(session: Session, address: Sequence[str], *, say: Callable[[str], None]) -> RunPage:
    """The page of a session that has been entered and keeps a log; a context manager.

    address: HOST:PORT, or nothing for the usual place. say: gets where the page is.
    """
    log = session.runner.run_log
    assert log is not None
    at = None
    if address:
        host, port = host_and_port(address[0])
        at = "0.0.0.0" if host == "*" else host.strip("[]"), 0 if port == "*" else int(port)
    return RunPage(COMMAND, log, session.post, address=at, say=say)
