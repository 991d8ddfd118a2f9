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
    """A demonstration from a file or another source; fits `policies.flow.dataset.Demonstration`."""

    observation: Observation
    rows: Float[np.ndarray, "H D"]
    num_committed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", readonly(self.rows))


def save_demonstrations(path: Path, demonstrations: Sequence[Demonstration]) -> None:
    """Write state, environment state, task and rows, without images. The file appears once it is complete.

    All demonstrations need the quantities measured in the first one, and environment states of one size.
    """
    observations = [d.observation for d in demonstrations]
    states = [observation.state for observation in observations]
    arrays: dict[str, Any] = {}
    for name in states[0].parts if states else ():
        arrays |= _arrays_of(name, [state.parts[name] for state in states])
    for name in states[0].measured if states else ():
        if any(name not in state.measured for state in states):
            raise ValueError(f"stored demonstrations need {name} in every state")
        arrays[_QUANTITY + name] = np.array([state.measured[name] for state in states])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:  # numpy would append .npz to a path
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
"""Array names of each kind of part; they are prefixed with the part's name if it is not the default."""
_DEFAULT_NAMES: dict[type[PartState], str] = {ArmState: ARM, GripperState: GRIPPER, BaseState: BASE}
_KIND_OF = {entry: kind for kind, entries in _ENTRIES.items() for entry in entries.values()}
_QUANTITY = "measured:"
"""Prefix of the arrays of further measured quantities."""


def _prefix(part: str, kind: type[PartState]) -> str:
    return "" if part == _DEFAULT_NAMES[kind] else f"{part}."


def _arrays_of(name: str, measured: Sequence[PartState]) -> dict[str, Any]:
    out, kind = {}, type(measured[0])
    for attribute, entry in _ENTRIES[kind].items():
        values = [getattr(part, attribute) for part in measured]
        if all(value is None for value in values):
            continue
        if any(value is None for value in values):
            raise ValueError(f"stored demonstrations need {attribute} of {name} in every state")
        if attribute == "X_BE":
            values = [X_BE.homogeneous for X_BE in values]
        out[_prefix(name, kind) + entry] = np.array(values)
    return out


def _parts_in(arrays: Mapping[str, np.ndarray]) -> dict[str, type[PartState]]:
    """The parts in a file, in the order of its arrays."""
    out: dict[str, type[PartState]] = {}
    for key in arrays:
        name, _, entry = key.rpartition(".")
        if (kind := _KIND_OF.get(entry)) is not None:
            out[name or _DEFAULT_NAMES[kind]] = kind
    return out


def _part(name: str, kind: type[PartState], arrays: Mapping[str, np.ndarray], i: int) -> PartState:
    entries = {attribute: _prefix(name, kind) + entry for attribute, entry in _ENTRIES[kind].items()}
    own: dict[str, Any] = {
        attribute: arrays[entry][i] for attribute, entry in entries.items() if entry in arrays
    }
    if "X_BE" in own:
        own["X_BE"] = pin.SE3(own["X_BE"])
    return kind(**own)


def load_demonstrations(path: Path) -> list[StoredDemonstration]:
    """The inverse of `save_demonstrations`; InvalidValueError if the file is something else."""
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
                        measured={
                            key.removeprefix(_QUANTITY): values[i]
                            for key, values in arrays.items()
                            if key.startswith(_QUANTITY)
                        },
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
