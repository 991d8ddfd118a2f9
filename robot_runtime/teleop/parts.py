"""Which parts of a robot can be driven, and by which leads: `followers_for`, `leadable`."""

from collections.abc import Mapping

from robot_runtime.core.plan.limits import BaseLimits, GripperLimits, JointLimits, Limits
from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.teleop import LeadableParts
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.fields import (
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
    JointVelocity,
    WorldEndEffectorPose,
)
from robot_runtime.teleop.config import TeleopConfig
from robot_runtime.teleop.followers import (
    BasePoseFollower,
    Follower,
    GripperFollower,
    JointFollower,
    PoseFollower,
    TwistFollower,
)
from robot_runtime.teleop.hand_kinematics import kinematics_of


def followers_for(
    spec: ActionSpec,
    limits: Limits,
    config: TeleopConfig,
    *,
    whole_body: WholeBody | Mapping[str, WholeBody] | None = None,
    hand_pose: HandPose | Mapping[str, HandPose] | None = None,
) -> dict[str, Follower]:
    """Make a follower for each part that a spec commands and a person can drive, in its order.

    whole_body: arms that it resolves are commanded in joints, whatever their rows are. Kinematics come from
        `whole_body` and `hand_pose`.
    """
    bodies = {whole_body.part: whole_body} if isinstance(whole_body, WholeBody) else whole_body or {}
    out: dict[str, Follower] = {}
    for f in spec.fields:
        declared = limits.parts.get(f.part)
        kinematics = kinematics_of(f.part, whole_body, hand_pose)
        match f, declared:
            case ((EndEffectorPose() | WorldEndEffectorPose()), _) if f.part not in bodies:
                joints = declared if isinstance(declared, JointLimits) else None
                out[f.part] = PoseFollower(f.part, joints, config)
            case JointVelocity(is_integrated=False), JointLimits():
                out[f.part] = JointFollower(
                    f.part, declared, config, kinematics=kinematics, sends_velocity=True
                )
            case (
                (JointPosition() | JointVelocity() | EndEffectorPose() | WorldEndEffectorPose()),
                JointLimits(),
            ):
                out[f.part] = JointFollower(f.part, declared, config, kinematics=kinematics)
            case ((GripperWidth() | GripperFraction()), GripperLimits()):
                out[f.part] = GripperFollower(f.part, declared)
            case BaseTwist(), BaseLimits():
                out[f.part] = TwistFollower(f.part, declared)
            case BasePose(), BaseLimits():
                out[f.part] = BasePoseFollower(f.part, declared)
    return out


def leadable(followers: Mapping[str, Follower]) -> LeadableParts:
    """Return the parts that a teleoperator may drive."""
    kinds = {part: type(follower) for part, follower in followers.items()}

    def of(*wanted: type) -> tuple[str, ...]:
        return tuple(part for part, kind in kinds.items() if issubclass(kind, wanted))

    arms = of(JointFollower, PoseFollower)
    hands = [part for part in arms if leads_hand(followers[part])]
    return LeadableParts(
        arms=arms,
        hands=tuple(hands),
        grippers=of(GripperFollower),
        bases=of(TwistFollower, BasePoseFollower),
    )


def leads_hand(follower: Follower) -> bool:
    """Whether end-effector poses and twists can drive it."""
    match follower:
        case PoseFollower():
            return True
        case JointFollower():
            return follower.has_hand
    return False
