"""Pages of the option --page: of a run, `open_page`, and of a live calibration, `open_guide_page`."""

from collections.abc import Callable, Sequence

from robot_runtime.page.guide_page import GuidePage
from robot_runtime.page.process import COMMAND
from robot_runtime.page.run_page import RunPage
from robot_runtime.robot.run import Session
from robot_runtime.transport.address import host_and_port


def open_page(session: Session, address: Sequence[str], *, say: Callable[[str], None]) -> RunPage:
    """Return the page of an entered session that keeps a log; a context manager.

    address: (HOST:PORT,), or () for the default address. say: gets a line with the page's address.
    """
    log = session.runner.run_log
    assert log is not None
    return RunPage(COMMAND, log, session.post, address=_host_port(address), say=say)


def open_guide_page(address: Sequence[str], *, say: Callable[[str], None]) -> GuidePage:
    """Return the page of a live calibration; a context manager. address, say: as for `open_page`."""
    return GuidePage(COMMAND, address=_host_port(address), say=say)


def _host_port(address: Sequence[str]) -> tuple[str, int] | None:
    """Return host and port; None: none is given."""
    if not address:
        return None
    host, port = host_and_port(address[0])
    return "0.0.0.0" if host == "*" else host.strip("[]"), 0 if port == "*" else int(port)
