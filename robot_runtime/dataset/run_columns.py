"""What a dataset of a run has beside state, action and pictures, and what its columns are called.

The names that Evo-RL's tools look for (`complementary_info.*`, `episode_success`) where there are some, and
ours. Nothing of what happened after a frame is in its columns, but for `next_valid`.
"""

from collections.abc import Sequence
from typing import Any

from robot_runtime.errors import InvalidValueError

OUTCOME, SUCCESS = "outcome_code", "episode_success"
"""Of an episode, in meta/episodes: how it ended, and what Evo-RL makes of that."""
OUTCOMES = ("success", "failure", "timeout", "operator_abort", "fault", "unknown")

TIME, WALL, DT = "t_mono_ns", "t_wall_ns", "dt_ns"
"""When the frame is, on the robot's clock and by the calendar; to the next frame's tick [ns]."""
TICK = "tick_seq"
"""Number of the control step that the frame shows, counted from the begin of the run."""
NEXT_VALID = "next_valid"
"""Whether the next frame really is one period later: no hidden gap, no reset, the same episode."""
TRAINABLE = "trainable"
"""Whether there is something to imitate: False while anything waits, brakes, aligns or is handed over.
Without a policy what stands is the person's, who has not moved it: only what aligns, brakes or waits to be
armed is False."""
POLICY_ACTION = "complementary_info.policy_action"
"""What the policy wanted, also while a person moved the robot; 0 where it had no plan."""
POLICY_VALID = "complementary_info.policy_action_valid"
IS_INTERVENTION = "complementary_info.is_intervention"
"""1 while a person moves any part, else 0."""
EVO_STATE = "complementary_info.state"
"""Of Evo-RL's three: 0 the policy drives, 1 a person has it, 2 it was handed back."""
COLLECTOR = "complementary_info.collector_policy_id"
"""human, or the policy's name."""
PRE_SAFETY = "action_pre_safety"
"""What the policy wanted where it drives; elsewhere what was commanded within our limits."""
CLAMPED = "safety_clamped"
"""Whether a part's command lost something to the limits."""
AUTHORITY, PHASE = "control_authority", "handover_phase"
"""Of each part, as numbers that `AUTHORITIES` and `PHASES` explain."""
AUTHORITY_MASK = "authority_mask"
"""Whether a number of the action was a person's."""
SEGMENT, INTERVENTION, BOUNDARY = "segment_id", "intervention_id", "boundary"
"""Counts spans under one authority; interventions, -1 outside of them; +1 at the first frame of one, -1 at
the first after it."""
CHUNK, CHUNK_ROW, CHUNK_OBS, CHUNK_DELAY = "chunk_id", "chunk_index", "chunk_obs_ns", "inference_delay"
"""The answer that moved the robot: its request, the row, when what it had seen was captured [ns], and how
many rows late it came; -1 where none did."""
MODE, CAUSE = "mode", "mode_cause"
"""Of the executor, in words."""

AUTHORITIES = ("policy", "human", "blended", "hold", "scripted", "safety")
PHASES = ("none", "request", "align", "adapt", "recover", "correct", "release")


def run_features(action_names: Sequence[str], parts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The columns as LeRobot declares them.

    parts: those that the run's policy commands.
    """

    def of(dtype: str, names: Sequence[str] | None = None, **info: Any) -> dict[str, Any]:
        shape = (1,) if names is None else (len(names),)
        out: dict[str, Any] = {"dtype": dtype, "shape": shape, "names": None if names is None else [*names]}
        return out | ({"info": info} if info else {})

    whole = (TIME, WALL, DT, TICK, SEGMENT, INTERVENTION, BOUNDARY, CHUNK, CHUNK_ROW, CHUNK_OBS, CHUNK_DELAY)
    return {
        **{name: of("int64") for name in whole},
        POLICY_ACTION: of("float32", action_names),
        POLICY_VALID: of("bool"),
        IS_INTERVENTION: of("float32", ["is_intervention"]),
        EVO_STATE: of("float32", ["state"]),
        COLLECTOR: of("string"),
        PRE_SAFETY: of("float32", action_names),
        CLAMPED: of("bool", parts),
        AUTHORITY: of("int64", parts, values=dict(enumerate_back(AUTHORITIES))),
        PHASE: of("int64", parts, values=dict(enumerate_back(PHASES))),
        AUTHORITY_MASK: of("bool", action_names),
        TRAINABLE: of("bool"),
        NEXT_VALID: of("bool"),
        MODE: of("string"),
        CAUSE: of("string"),
    }


def enumerate_back(names: Sequence[str]) -> list[tuple[str, int]]:
    """Each name and its number."""
    return [(name, number) for number, name in enumerate(names)]


def part_of(action_name: str, parts: Sequence[str]) -> int:
    """Number of the part that a number of an action is of: left_arm.joint_3 -> that of left_arm; -1: of none,
    as numbers of a quantity of one's own may be called."""
    part = action_name.partition(".")[0]
    return parts.index(part) if part in parts else -1


def success_of(outcome: str) -> str | None:
    """success or failure; None where the policy is not to be blamed, or nobody said.

    InvalidValueError: there is no such outcome.
    """
    if outcome not in OUTCOMES:
        raise InvalidValueError(f"an episode ends as {', '.join(OUTCOMES)}, got {outcome!r:.60}")
    return {"success": "success", "failure": "failure", "timeout": "failure"}.get(outcome)
