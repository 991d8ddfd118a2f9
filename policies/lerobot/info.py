"""Capabilities of a LeRobot policy beyond its metadata."""

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
    """The declared execution horizon, or that of LeRobot's own loop if it does not run all rows."""
    declared, horizon = info.capabilities.execution_horizon, info.action_spec.horizon
    if declared is not None or getattr(config, "temporal_ensemble_coeff", None) is not None:
        return declared
    rows = int(getattr(config, "n_action_steps", horizon))
    return rows if rows < horizon else None


def statistics_of(config: Any, network: "LeRobotFlow | XvlaFlow", columns: Columns) -> RowStatistics | None:
    """Statistics of its postprocessor; None if it does not normalise rows.

    They are also None for columns with different origins, which a robot cannot compare with its state.
    """
    if columns.is_mixed or config.normalization_mapping.get("ACTION", "IDENTITY") == "IDENTITY":
        return None
    mean, std = network.offset[None], np.abs(network.scale)[None]
    return RowStatistics(mean=mean, std=std, from_measured=columns.count_from_state)
