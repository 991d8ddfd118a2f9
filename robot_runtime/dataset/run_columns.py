"""Columns of a run's dataset beside state, action and images, and their names.

Names follow Evo-RL's tools (`complementary_info.*`, `episode_success`) where these have some. A frame's
columns use nothing that happened after it, except `next_valid`.
"""

from collections.abc import Sequence
from typing import Any

from robot_runtime.errors import InvalidValueError

OUTCOME, SUCCESS = "outcome_code", "episode_success"
"""Columns of an episode, in meta/episodes: its outcome, and Evo-RL's form of it."""
OUTCOMES = ("success", "failure", "timeout", "operator_abort", "fault", "unknown")

TIME, WALL, DT = "t_mono_ns", "t_wall_ns", "dt_ns"
"""Time of the frame, on the robot's clock and by the calendar; time to the next frame's tick [ns]."""
TICK = "tick_seq"
"""Number of the control tick in the frame, counted from the start of the run."""
NEXT_VALID = "next_valid"
"""Whether the next frame is really one period later: no hidden gap, no reset, the same episode."""
TRAINABLE = "trainable"
"""Whether there is something to imitate: False while anything waits, brakes, aligns or is handed over.
Without a policy a stationary robot counts as driven by the person: only aligning, braking or waiting to be
armed is False."""
POLICY_ACTION = "complementary_info.policy_action"
"""The policy's command, also while a person moved the robot; 0 where it had no plan."""
POLICY_VALID = "complementary_info.policy_action_valid"
IS_INTERVENTION = "complementary_info.is_intervention"
"""1 while a person moves any part, else 0."""
EVO_STATE = "complementary_info.state"
"""Evo-RL's three states: 0 the policy drives, 1 a person drives, 2 it was handed back."""
COLLECTOR = "complementary_info.collector_policy_id"
"""human, or the policy's name."""
PRE_SAFETY = "action_pre_safety"
"""The policy's command where it drives; elsewhere the command within our limits."""
CLAMPED = "safety_clamped"
"""Whether a part's command was clipped by the limits."""
AUTHORITY, PHASE = "control_authority", "handover_phase"
"""Authority and phase of each part, as numbers that `AUTHORITIES` and `PHASES` explain."""
AUTHORITY_MASK = "authority_mask"
"""Whether a number of the action was commanded by a person."""
SEGMENT, INTERVENTION, BOUNDARY = "segment_id", "intervention_id", "boundary"
"""Counts spans under one authority; interventions, -1 outside of them; +1 at the first frame of one, -1 at
the first after it."""
CHUNK, CHUNK_ROW, CHUNK_OBS, CHUNK_DELAY = "chunk_id", "chunk_index", "chunk_obs_ns", "inference_delay"
"""The answer that moved the robot: its request, the row, the capture time of its observation [ns], and how
many rows late it came; -1 where none did."""
MODE, CAUSE = "mode", "mode_cause"
"""Mode and cause of the executor, in words."""

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
    """Number of the part to which an action's number belongs: left_arm.joint_3 -> that of left_arm; -1: none,
    for a quantity of the user's own."""
    part = action_name.partition(".")[0]
    return parts.index(part) if part in parts else -1


def success_of(outcome: str) -> str | None:
    """success or failure; None where the policy is not to blame, or the outcome is unknown.

    InvalidValueError: there is no such outcome.
    """
    if outcome not in OUTCOMES:
        raise InvalidValueError(f"an episode ends as {', '.join(OUTCOMES)}, got {outcome!r:.60}")
    return {"success": "success", "failure": "failure", "timeout": "failure"}.get(outcome)
