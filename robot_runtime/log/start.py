"""Starts the log of a run: `start_log`."""

import logging
import time
from collections.abc import Callable

from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.schema import Schema
from robot_runtime.log.config import All, LastSeconds, LogConfig, Nothing, RunInfo
from robot_runtime.log.file import Sink
from robot_runtime.log.folder import check_folder, new_file
from robot_runtime.log.ring import Nowhere, Ring
from robot_runtime.log.writer import RunLogWriter
from robot_runtime.results import made_by

logger = logging.getLogger(__name__)


def start_log(
    config: LogConfig,
    *,
    task: str,
    robot: str,
    schema: Schema,
    policy: PolicyInfo,
    control_period_ns: int,
    now_ns: int,
    is_virtual: bool = False,
    method: str = "",
    seed: int = 0,
    address: str = "",
    has_policy: bool = True,
    model: str = "",
    on_fault: Callable[[str], None] = logger.error,
) -> RunLogWriter:
    """Start the log of a run; the parameters about the run are those of `RunInfo`.

    now_ns: by the run's own clock [ns]. on_fault: as of `RunLogWriter`.
    InvalidValueError: its folder is not writable.
    """
    info = RunInfo(
        task=task,
        robot=robot,
        schema=schema,
        policy=policy,
        control_period_ns=control_period_ns,
        started_wall_ns=time.time_ns(),
        started_ns=now_ns,
        is_part=isinstance(config.keep, LastSeconds),
        is_virtual=is_virtual,
        method=method,
        seed=seed,
        address=address,
        has_policy=has_policy,
        model=model,
        made_by=made_by(seeds=[seed]),
    )
    sink: Sink
    match config.keep:
        case All():
            sink = new_file(config, info)
        case LastSeconds(seconds=seconds):
            check_folder(config)
            sink = Ring(seconds, lambda: new_file(config, info))
        case Nothing():
            sink = Nowhere()
    return RunLogWriter(
        info, sink, has_thread=not is_virtual, jpeg_quality=config.jpeg_quality, on_fault=on_fault
    )
