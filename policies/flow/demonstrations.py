"""Demonstrations in one npz file: arrays only, never pickle."""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from jaxtyping import Float

from policies.flow.dataset import Demonstration
from robot_runtime.core.values.state import (
    ARM,
    BASE,
    GRIPPER,
    ArmState,
    BaseState,
    GripperState,
    Observation,
    PartState,
    RobotState,
    readonly,
)
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

    All demonstrations need the parts of the first, the hand of every arm, and environment states of one size.
    """
    observations = [d.observation for d in demonstrations]
    states = [observation.state for observation in observations]
    arrays: dict[str, Any] = {}
    for name in states[0].parts if states else ():
        arrays |= _arrays_of(name, [state.parts[name] for state in states])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:  # a path would get .npz added to it
        np.savez(
            file,
            t_ns=np.array([state.t_ns for state in states]),
            environment_state=np.array([observation.environment_state for observation in observations]),
            task=np.array([observation.task for observation in observations]),
            rows=np.array([d.rows for d in demonstrations]),
            num_committed=np.array([d.num_committed for d in demonstrations]),
            **arrays,
        )
    part.replace(path)


_ENTRIES: dict[type[PartState], dict[str, str]] = {
    ArmState: {"q": "q", "dq": "dq", "X_BE": "pose_base_end_effector"},
    GripperState: {"width": "gripper_width"},
    BaseState: {"x_WB": "pose_world_base", "V_WB_B": "twist_world_base"},
}
"""What the arrays of each kind of part are called; those of a part with a name of its own begin with that."""
_DEFAULT_NAMES = (ARM, GRIPPER, BASE)


def _prefix(part: str) -> str:
    return "" if part in _DEFAULT_NAMES else f"{part}."


def _arrays_of(name: str, measured: Sequence[PartState]) -> dict[str, Any]:
    out = {}
    for attribute, entry in _ENTRIES[type(measured[0])].items():
        values = [getattr(part, attribute) for part in measured]
        if any(value is None for value in values):
            raise ValueError(f"stored demonstrations need {attribute} of {name} in every state")
        if attribute == "X_BE":
            values = [X_BE.homogeneous for X_BE in values]
        out[_prefix(name) + entry] = np.array(values)
    return out


def _parts_in(arrays: Mapping[str, np.ndarray]) -> dict[str, type[PartState]]:
    """The parts that a file tells of, in the order of its arrays."""
    out: dict[str, type[PartState]] = {}
    for key in arrays:
        name, _, entry = key.rpartition(".")
        for default, (kind, entries) in zip(_DEFAULT_NAMES, _ENTRIES.items(), strict=True):
            if entry == next(iter(entries.values())):
                out[name or default] = kind
    return out


def _part(name: str, kind: type[PartState], arrays: Mapping[str, np.ndarray], i: int) -> PartState:
    own = {attribute: arrays[_prefix(name) + entry][i] for attribute, entry in _ENTRIES[kind].items()}
    if "X_BE" in own:
        own["X_BE"] = pin.SE3(own["X_BE"])
    return kind(**own)


def load_demonstrations(path: Path) -> list[StoredDemonstration]:
    """Inverse of `save_demonstrations`; InvalidValueError if the file is something else."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        parts = _parts_in(arrays)
        return [
            StoredDemonstration(
                observation=Observation(
                    state=RobotState(
                        t_ns=int(arrays["t_ns"][i]),
                        parts={name: _part(name, kind, arrays, i) for name, kind in parts.items()},
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
