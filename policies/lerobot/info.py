"""What a policy of LeRobot's can do beyond what its metadata say."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.lerobot.metadata import Columns, PolicyMetadata
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.row_statistics import RowStatistics

if TYPE_CHECKING:
    from policies.lerobot.flow import LeRobotFlow
    from policies.lerobot.xvla import XvlaFlow


def info_with(metadata: PolicyMetadata, capabilities: Capabilities) -> PolicyInfo:
    return replace(metadata.info, capabilities=capabilities)


def execution_horizon(config: Any, info: PolicyInfo) -> int | None:
    """As the file says, or after as many rows as LeRobot's own loop runs, if it does not run them all."""
    said, horizon = info.capabilities.execution_horizon, info.action_spec.horizon
    if said is not None or getattr(config, "temporal_ensemble_coeff", None) is not None:
        return said
    rows = int(getattr(config, "n_action_steps", horizon))
    return rows if rows < horizon else None


def statistics_of(config: Any, network: "LeRobotFlow | XvlaFlow", columns: Columns) -> RowStatistics | None:
    """What its postprocessor knows; rows that it leaves as they are say nothing of what is usual.

    Columns that count from the state each in a way of their own have none that a robot could compare with.
    """
    if columns.is_mixed or config.normalization_mapping.get("ACTION", "IDENTITY") == "IDENTITY":
        return None
    mean, std = network.offset[None], np.abs(network.scale)[None]
    return RowStatistics(mean=mean, std=std, from_measured=columns.count_from_state)
