"""`robot-runtime page`: shows a recorded run in a browser."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from robot_runtime.cli.options import HostPort, InputFile, Maybe, need
from robot_runtime.commands.read_log import log_of


@dataclass(frozen=True, kw_only=True)
class Page:
    """Show a recorded run in a browser, with a time slider.

    The page is the one that `robot-runtime run --page` serves while a robot moves. Ctrl-C ends it.
    """

    log: Annotated[Positional[InputFile], arg(metavar="RUN.mcap")]
    """The run's log."""
    address: HostPort = "127.0.0.1:8080"
    """Address to listen on. Beyond this machine the page requires a token, which the printed address has."""
    model: Maybe[str] = None
    """Model of the robot to draw: a .urdf file, a MuJoCo .xml file, fr3, or task:NAME for that of a task; as
    in the log if not given."""

    def main(self) -> int:
        need("viser")
        with recorded_page(self.log, self.address, self.model) as url:
            print(f"page: {url}", flush=True)
            while True:
                time.sleep(3600.0)


@contextmanager
def recorded_page(path: Path, address: str, model: str | None = None) -> Iterator[str]:
    """Serve the page of a run's log; yield its URL. model: None: as in the log.

    InvalidValueError: the log or the model cannot be read, or nothing can listen there.
    """
    from robot_runtime.core.values.columns import pose_columns, state_columns
    from robot_runtime.page.child import first_server
    from robot_runtime.page.recorded import RecordedSource, Recording
    from robot_runtime.page.robot_model import body_named
    from robot_runtime.page.scene import Scene
    from robot_runtime.transport.address import host_and_port

    host, port = host_and_port(address)
    host, number = "0.0.0.0" if host == "*" else host.strip("[]"), 0 if port == "*" else int(port)
    with log_of(path, needs_whole=False) as log:
        recording = Recording(log)
    if damage := log.damage:
        print(f"warning: {damage}", file=sys.stderr)
    schema = recording.info.schema
    body = body_named(
        recording.info.model if model is None else model, (*state_columns(schema), *pose_columns(schema))
    )
    with ExitStack() as opened:
        scene = opened.enter_context(Scene(body))
        source = opened.enter_context(RecordedSource(recording, scene))
        yield opened.enter_context(first_server(host, (number,), source, scene)).url
