"""Demonstrations in one npz file: arrays only, never pickle."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from jaxtyping import Float

from policies.flow.dataset import Demonstration
from robot_runtime.core.values.state import Observation, RobotState, readonly
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredDemonstration:
    """A demonstration out of a file, or told otherwise; fits `policies.flow.dataset.Demonstration`."""

    observation: Observation
    rows: Float[np.ndarray, "H D"]
    num_committed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", readonly(self.rows))


def save_demonstrations(path: Path, demonstrations: Sequence[Demonstration]) -> None:
    """Write state, environment state, task and rows; images are left out. The file is there when it is whole.

    All demonstrations need X_BE and gripper_width, and environment states of one size; a mobile base is kept
    where the first has one.
    """
    observations = [d.observation for d in demonstrations]
    states = [observation.state for observation in observations]
    if any(state.X_BE is None or state.gripper_width is None for state in states):
        raise ValueError("stored demonstrations need X_BE and gripper_width in every state")
    base: dict[str, Any] = {}
    if states and states[0].x_WB is not None:
        base["pose_world_base"] = np.array([state.x_WB for state in states])
        base["twist_world_base"] = np.array([state.V_WB_B for state in states])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:  # a path would get .npz added to it
        np.savez(
            file,
            t_ns=np.array([state.t_ns for state in states]),
            q=np.array([state.q for state in states]),
            dq=np.array([state.dq for state in states]),
            pose_base_end_effector=np.array([state.X_BE.homogeneous for state in states if state.X_BE]),
            gripper_width=np.array([state.gripper_width for state in states]),
            environment_state=np.array([observation.environment_state for observation in observations]),
            task=np.array([observation.task for observation in observations]),
            rows=np.array([d.rows for d in demonstrations]),
            num_committed=np.array([d.num_committed for d in demonstrations]),
            **base,
        )
    part.replace(path)


def load_demonstrations(path: Path) -> list[StoredDemonstration]:
    """Inverse of `save_demonstrations`; InvalidValueError if the file is something else."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return [
            StoredDemonstration(
                observation=Observation(
                    state=RobotState(
                        t_ns=int(arrays["t_ns"][i]),
                        q=arrays["q"][i],
                        dq=arrays["dq"][i],
                        X_BE=pin.SE3(arrays["pose_base_end_effector"][i]),
                        gripper_width=float(arrays["gripper_width"][i]),
                        x_WB=arrays["pose_world_base"][i] if "pose_world_base" in arrays else None,
                        V_WB_B=arrays["twist_world_base"][i] if "twist_world_base" in arrays else None,
                    ),
                    environment_state=arrays["environment_state"][i],
                    task=str(arrays["task"][i]),
                ),
                rows=rows,
                num_committed=int(arrays["num_committed"][i]),
            )
            for i, rows in enumerate(arrays["rows"])
        ]
    except (KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidValueError(f"{path} holds no demonstrations: {str(error).partition('.')[0]}") from error
