"""Makes rows to imitate from commands, for datasets without an expert's plan: `FromActions`.

frames   k    k+1  k+2  ...  k+H-1           the rows of frame k are the actions of k, k + 1, ...
         └────── all of one kind ──────┘     kept if all of them are to be imitated
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.values.action import ActionChunk, ActionSpec
from robot_runtime.core.values.columns import command_columns, hand_numbers
from robot_runtime.core.values.fields import ActionField, EndEffectorPose, Rotation, absolute
from robot_runtime.core.values.pose_rows import rotations_from_columns, rotations_to_columns
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.waypoints import Waypoints
from robot_runtime.dataset.recording import ACTION, names_in
from robot_runtime.dataset.run_columns import (
    AUTHORITIES,
    AUTHORITY,
    IS_INTERVENTION,
    NEXT_VALID,
    PHASE,
    PHASES,
    TRAINABLE,
)
from robot_runtime.errors import InvalidValueError

Who = Literal["all", "human", "policy"]


@dataclass(frozen=True, kw_only=True, eq=False)
class FromActions:
    """Makes rows from actions, and selects whose to learn from."""

    spec: ActionSpec
    """Action spec of the rows; frames have the same spacing as rows."""
    hand_poses: Mapping[str, HandPose]
    """Joints of each arm to X_BE, for end-effector rows from joint commands."""
    only: Who = "all"
    """human: what a person did in takeovers; policy: the rest; all: both. Frames in which the robot held,
    braked or was just being handed over are never learned from."""

    def rows(
        self, features: Mapping[str, Any], columns: Mapping[str, np.ndarray]
    ) -> tuple[Float[np.ndarray, "n H D"], Bool[np.ndarray, " n"]]:
        """Rows of every frame, absolute as commands are, and whether each frame is learned from.

        InvalidValueError: the dataset lacks columns that are needed.
        """
        actions = columns[ACTION].reshape(len(columns[ACTION]), -1).astype(float)
        named = dict(zip(names_in(features, ACTION), actions.T, strict=True))
        commanded = np.column_stack([self._numbers(f, named) for f in self.spec.fields])
        ends = _last_frames(columns["episode_index"])
        ahead = np.arange(len(commanded))[:, None] + np.arange(self.spec.horizon)
        inside = np.minimum(ahead, ends[:, None])
        good = self._worth(columns)
        follows = (
            columns[NEXT_VALID].ravel().astype(bool)
            if NEXT_VALID in columns
            else np.ones(len(commanded), bool)
        )
        continues = follows | (np.arange(len(commanded)) == ends)
        kept = good[inside].all(1) & continues[inside[:, :-1]].all(1)
        return commanded[inside], kept

    def counted_from(self, rows: Float[np.ndarray, "H D"], anchor: RobotState) -> Float[np.ndarray, "H D"]:
        """The rows of a frame as a policy predicts them, relative to its state where the spec says so."""
        if self._absolute == self.spec:
            return rows
        chunk = ActionChunk(spec=self._absolute, rows=rows, anchor=anchor, request_id=0, epoch=0)
        return Waypoints.from_chunk(chunk).encode(self.spec, anchor)

    @cached_property
    def _absolute(self) -> ActionSpec:
        """The action spec of commands."""
        return replace(self.spec, fields=tuple(absolute(f) for f in self.spec.fields))

    def why_none(self, columns: Mapping[str, np.ndarray]) -> str:
        """Reasons why frames are not learned from, with counts; a frame may have several reasons."""
        num = len(columns[ACTION])
        counts = {}
        if TRAINABLE in columns:
            trainable = columns[TRAINABLE].ravel().astype(bool)
            counts["not trainable"] = num - int(trainable.sum())
            for column, values, what in (
                (AUTHORITY, AUTHORITIES, ("hold", "safety", "blended")),
                (PHASE, PHASES, ("request", "align", "adapt", "release")),
            ):
                for name in what if column in columns else ():
                    is_so = (columns[column].reshape(num, -1) == values.index(name)).any(1)
                    counts[f"of these with a part in {name}"] = int((is_so & ~trainable).sum())
        if self.only != "all":
            is_human = columns[IS_INTERVENTION].ravel() > 0
            counts[f"not --only {self.only}"] = int((is_human != (self.only == "human")).sum())
        if NEXT_VALID in columns:
            counts["before a gap or an end"] = int((~columns[NEXT_VALID].ravel().astype(bool)).sum())
        reasons = ", ".join(f"{count} {why}" for why, count in counts.items() if count)
        return (
            f"of {num} frames {reasons or 'none is left out'}; rows need {self.spec.horizon} consecutive ones"
        )

    def _numbers(self, f: ActionField, named: Mapping[str, np.ndarray]) -> np.ndarray:
        names = command_columns(f)
        if all(name in named for name in names):
            return np.column_stack([named[name] for name in names])
        if isinstance(f, EndEffectorPose) and f.rotation is Rotation.VECTOR:
            numbers = self._numbers(replace(f, rotation=Rotation.COLUMNS), named)
            turns = rotations_to_columns(rotations_from_columns(numbers[:, 3:]), f.rotation)
            return np.column_stack([numbers[:, :3], turns])
        joints = [name for name in named if name.startswith(f"{f.part}.joint_")]
        if isinstance(f, EndEffectorPose) and f.part in self.hand_poses and joints:
            hand = self.hand_poses[f.part]
            q = np.column_stack([named[name] for name in joints])
            return np.array([hand_numbers(hand(each)) for each in q])
        missing = ", ".join(name for name in names if name not in named)
        raise InvalidValueError(f"the dataset has no action {missing}; it has {', '.join(named)}")

    def _worth(self, columns: Mapping[str, np.ndarray]) -> Bool[np.ndarray, " n"]:
        """Frames that are to be imitated."""
        num = len(columns[ACTION])
        good = columns[TRAINABLE].ravel().astype(bool) if TRAINABLE in columns else np.ones(num, bool)
        if self.only == "all":
            return good
        if IS_INTERVENTION not in columns:
            raise InvalidValueError(
                f"--only {self.only}: the dataset does not record who drove (no column {IS_INTERVENTION})"
            )
        is_human = columns[IS_INTERVENTION].ravel() > 0
        return good & (is_human if self.only == "human" else ~is_human)


def _last_frames(episodes: Sequence[int] | np.ndarray) -> np.ndarray:
    """For each frame, the last one of its episode."""
    of = np.asarray(episodes).ravel()
    ends = np.flatnonzero(np.append(of[1:] != of[:-1], True))
    return ends[np.searchsorted(ends, np.arange(len(of)))]
