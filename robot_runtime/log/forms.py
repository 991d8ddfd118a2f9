"""The runtime's values as msgpack and back, exact to the last bit, NaN and infinity included.

    a value of ours    {"": its name, field: value, ...}         of the classes in `_classes`, no others
    an array           Ext 1: float64 in one dimension; Ext 2: any other, dtype and shape in front
    a pose             Ext 3: rotation (9) by rows and translation (3), float64
    kinematics         their joints in numbers, `Joint`, from which Pinocchio's model is built again
    an image           its time alone: images have channels of their own
    anything else      {"": "Foreign", "text": what it was}: a function or an object of the user's

`Foreign` is decoded as such; code that needs the value raises an error. Decoded values are checked against
the classes' annotations, and no native deserialiser sees any of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, get_args

import msgspec
import numpy as np
import pinocchio as pin
from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder, Ext

from robot_runtime.core import journal, orders
from robot_runtime.core.arming import ArmingRules
from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.configuration import Configuration, Foreign
from robot_runtime.core.method import request_parts, sampler_parts, splice_parts
from robot_runtime.core.method.latency import LatencyKnown
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan import limits
from robot_runtime.core.plan.answers import PartOutcome, Splice
from robot_runtime.core.plan.axis_limiter import Shortfall
from robot_runtime.core.plan.clip import Clip
from robot_runtime.core.plan.correction import CorrectionHead
from robot_runtime.core.plan.kinematics import ModelKinematics
from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.plan.timeline import Phase, Seam, Source
from robot_runtime.core.plan.whole_body import WholeBody, WholeBodyGains
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.tick import Tick
from robot_runtime.core.values import action, command, state
from robot_runtime.core.values.fields import ActionField, Reference, Rotation
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.core.values.shapes import Float
from robot_runtime.log.field_types import Check, checks_of

LINE, ARRAY, POSE, OLD_MODEL = 1, 2, 3, 4
"""Extension codes. The last is Pinocchio's own text, which older logs had: it is never read."""
_FLOAT = np.dtype(np.float64)
_KINDS = "fiub"
"""Kinds of arrays: floats, integers, booleans."""


class FormError(ValueError):
    """Bytes that are not a value of ours, damaged, or of a newer version; reports what they hold."""


class HandPoseOf(Struct, frozen=True):
    """Forward kinematics: the function of a `ModelKinematics`."""

    kinematics: ModelKinematics | Foreign


class Joint(Struct, frozen=True):
    """One joint of a model; the joints of a composite are its `of_body`."""

    kind: str
    """Name of Pinocchio's class: one of those below."""
    placement: pin.SE3
    """Pose in the joint that carries it."""
    axis: Float[np.ndarray, "3"] | None = None
    parent: int = 0
    """Number of the joint that carries it; 0: the mount."""
    of_body: tuple["Joint", ...] = ()


MAX_JOINTS = 128
_WITHOUT_AXIS = (
    *(f"JointModel{kind}{axis}" for kind in "RP" for axis in "XYZ"),
    "JointModelSphericalZYX",
    "JointModelTranslation",
)
_WITH_AXIS = ("JointModelRevoluteUnaligned", "JointModelPrismaticUnaligned")
_OF_BODY = "JointModelComposite"


def _members(*unions: Any) -> list[type]:
    return [each for union in unions for each in (get_args(union) or (union,))]


def _classes() -> list[type]:
    from robot_runtime.log import entries  # they hold values of every kind

    parts = [
        *_members(request_parts.RequestPart, request_parts.When, request_parts.RollForward),
        *_members(sampler_parts.SamplerPart, splice_parts.SplicePart, splice_parts.Blend),
        *_members(splice_parts.Correction, ActionField, command.PartCommand, state.PartState),
        *_members(limits.PartLimits, journal.Entry, entries.LogEntry, orders.Order),
    ]
    enums: list[type] = [Mode, Cause, Phase, PartOutcome, Reference, action.RowTiming, orders.Outcome]
    enums += [Authority, HandoverPhase, Rotation]
    enums += [sampler_parts.SoftMask, sampler_parts.Consensus]
    others = [
        ArmingRules, Method, Splice, Clip, Shortfall, CorrectionHead, Source, Seam, WholeBodyGains,
        ChunkRequest, StateLimits, Tick, RowStatistics, Foreign, HandPoseOf, Joint,
        action.ActionSpec, action.ChunkPart, command.Command, state.RobotState, state.Observation,
        limits.Limits, limits.MotionLimits, limits.SpeedCurve,
        Configuration, LatencyKnown,
    ]  # fmt: skip
    return [*dict.fromkeys([*parts, *enums, *others])]


class Forms:
    """Encodes and decodes; one thread owns it."""

    def __init__(self) -> None:
        self._known = {kind.__name__: kind for kind in _classes()}
        self._fields: dict[type, tuple[str, ...]] = {}
        self._checks: dict[str, Mapping[str, Check]] = {}
        self._encoder, self._decoder = Encoder(), Decoder(ext_hook=_from_ext)

    def encode(self, value: object) -> bytes:
        """Encode one value, or a list of them."""
        return self._encoder.encode(self.form_of(value))

    def decode(self, data: bytes) -> Any:
        """Inverse of `encode`, lists as tuples; FormError: other bytes, or a version with other fields."""
        try:
            return self.value_of(self._decoder.decode(data))
        except FormError:
            raise
        except (msgspec.DecodeError, TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
            raise FormError(f"{type(error).__name__}: {error!s:.300}") from error

    # ---- to plain values -------------------------------------------------------------------------

    def form_of(self, value: Any) -> Any:
        """Convert to plain values that msgpack has."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if (names := self._fields.get(kind)) is not None:
            out = {"": kind.__name__}
            for name in names:
                each = getattr(value, name)
                out[name] = each if type(each) in _PLAIN else self.form_of(each)
            return out
        if kind is np.ndarray:
            return _array_form(value)
        if kind is MappingProxyType or isinstance(value, Mapping):
            return {name: self.form_of(each) for name, each in value.items()}
        if kind in (tuple, list):
            return [self.form_of(each) for each in value]
        if (special := _SPECIAL.get(kind)) is not None:
            return self.form_of(special(value)) if kind in _AGAIN else special(value)
        return self._form_of_other(value)

    def _form_of_other(self, value: Any) -> Any:
        kind = type(value)
        if self._known.get(kind.__name__) is kind:
            if isinstance(value, Enum):
                return {"": kind.__name__, "=": value.name}
            self._fields[kind] = _field_names(kind)
            return self.form_of(value)
        if isinstance(value, bool | np.bool_):
            return bool(value)
        if isinstance(value, int | np.integer):
            return int(value)
        if isinstance(value, float | np.floating):
            return float(value)
        if isinstance(found := _kinematics_of(getattr(value, "__self__", value)), ModelKinematics):
            is_function = getattr(value, "__self__", None) is not None
            return self.form_of(HandPoseOf(found) if is_function else found)
        return {"": "Foreign", "text": repr(value)[:300]}

    # ---- and back --------------------------------------------------------------------------------

    def value_of(self, form: Any) -> Any:
        """Inverse of `form_of`."""
        kind = type(form)
        if kind is list:
            return tuple(self.value_of(each) for each in form)
        if kind is not dict:
            return form
        if (name := form.get("")) is None:
            return {key: self.value_of(each) for key, each in form.items()}
        known = _BUILT.get(name) or self._known.get(name) if isinstance(name, str) else None
        if known is None:
            raise FormError(f"expected a value of a kind that this version knows, got {name!r:.60}")
        if isinstance(known, type) and issubclass(known, Enum):
            return known[form["="]]
        fields = {key: self.value_of(each) for key, each in form.items() if key}
        if name in _LIMITED:  # older logs do not declare it: their robots ran with these limits
            fields.setdefault("unusual", True)
        if (checks := self._checks.get(name)) is None:
            checks = self._checks[name] = checks_of(known)
        sizes: dict[str, int] = {}
        for key, each in fields.items():
            if (check := checks.get(key)) is not None and not check(each, sizes):
                raise FormError(f"the {key} of a {name} has another type or shape: {each!r:.100}")
        return known(**fields)


_LIMITED = ("JointLimits", "GripperLimits", "BaseLimits")
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, Ext})


def _field_names(kind: type) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(each.name for each in fields(kind) if each.init)
    return tuple(kind.__struct_fields__)  # type: ignore[attr-defined]


def _array_form(array: np.ndarray) -> Ext:
    if array.dtype == _FLOAT and array.ndim == 1:
        return Ext(LINE, array.tobytes())
    if array.dtype.kind not in _KINDS:
        raise FormError(f"expected an array of numbers, got one of {array.dtype}")
    head = msgspec.msgpack.encode((array.dtype.str, array.shape))
    return Ext(ARRAY, len(head).to_bytes(2, "little") + head + array.tobytes())


def _from_ext(code: int, data: memoryview) -> Any:
    match code:
        case 1:
            return np.frombuffer(bytes(data), _FLOAT) if len(data) else _NONE
        case 2:
            whole = bytes(data)
            end = 2 + int.from_bytes(whole[:2], "little")
            name, shape = msgspec.msgpack.decode(whole[2:end], type=tuple[str, tuple[int, ...]])
            dtype = np.dtype(name)
            if dtype.kind not in _KINDS:
                raise FormError(f"expected an array of numbers, got one of {dtype}")
            array = np.frombuffer(whole[end:], dtype) if len(whole) > end else np.zeros(0, dtype)
            return array.reshape(shape)
        case 3:
            numbers = np.frombuffer(bytes(data), _FLOAT)
            return pin.SE3(numbers[:9].reshape(3, 3), numbers[9:])
        case 4:
            return Foreign("a kinematic model in the form of an older version")
    raise FormError(f"expected an extension that this version knows, got {code}")


def _pose_form(pose: pin.SE3) -> Ext:
    return Ext(POSE, np.concatenate([pose.rotation.ravel(), pose.translation]).tobytes())


def _kinematics_of(value: object) -> object:
    """The part of a user's kinematics that a log can hold: its model, if it has one."""
    return value if isinstance(value, ModelKinematics) else getattr(value, "model_kinematics", None)


def _kinematics_form(kinematics: ModelKinematics) -> dict[str, Any] | Foreign:
    model = kinematics.model
    frame = model.frames[model.getFrameId(kinematics.frame)]
    try:
        joints = tuple(
            _joint(model.joints[i], model.jointPlacements[i], model.parents[i])
            for i in range(1, model.njoints)
        )
    except FormError as error:
        return Foreign(str(error))
    own = {name: getattr(kinematics, name) for name in ("frame", "X_FE", "p_BA", "yaw")}
    on = {"frame_joint": frame.parentJoint, "X_JF": frame.placement}
    return {"": "Kinematics", "joints": joints, **own, **on}


def _joint(joint: Any, placement: pin.SE3, parent: int = 0) -> Joint:
    """FormError: a log does not hold joints of its kind."""
    kind = joint.shortname()
    if kind == _OF_BODY:
        whole = joint.extract() if isinstance(joint, pin.JointModel) else joint
        of_body = tuple(map(_joint, whole.joints, whole.jointPlacements))
        return Joint(kind, placement, parent=parent, of_body=of_body)
    if kind in _WITH_AXIS:
        return Joint(kind, placement, axis=np.array(joint.extract().axis), parent=parent)
    if kind not in _WITHOUT_AXIS:
        raise FormError(f"a joint of the kind {kind}")
    return Joint(kind, placement, parent=parent)


def _kinematics(
    joints: tuple[Joint, ...],
    frame: str,
    frame_joint: int,
    X_JF: pin.SE3,
    X_FE: pin.SE3,
    p_BA: tuple[float, float, float],
    yaw: float,
) -> ModelKinematics:
    """Inverse of `_kinematics_form`. FormError: such a model is impossible."""
    if len(joints) > MAX_JOINTS:
        raise FormError(f"expected a model of at most {MAX_JOINTS} joints, got {len(joints)}")
    model = pin.Model()
    for number, joint in enumerate(joints):
        if not 0 <= joint.parent <= number:
            raise FormError(f"expected joint {number + 1} on one before it, got it on {joint.parent}")
        model.addJoint(joint.parent, _built(joint), joint.placement, f"joint {number + 1}")
    if not 0 <= frame_joint <= len(joints):
        raise FormError(f"expected a frame on one of {len(joints)} joints, got it on {frame_joint}")
    if not model.existFrame(frame):  # every model has "universe"
        model.addFrame(pin.Frame(frame, frame_joint, X_JF, pin.FrameType.OP_FRAME))
    return ModelKinematics(model, frame, X_FE=X_FE, p_BA=p_BA, yaw=yaw)


def _built(joint: Joint, *, is_alone: bool = True) -> Any:
    if joint.kind in _WITHOUT_AXIS:
        return getattr(pin, joint.kind)()
    if joint.kind in _WITH_AXIS and joint.axis is not None:
        return getattr(pin, joint.kind)(joint.axis)
    if joint.kind != _OF_BODY or not is_alone or not 0 < len(joint.of_body) <= MAX_JOINTS:
        raise FormError(f"expected a joint of a known kind, got {joint.kind!r:.60}")
    whole = pin.JointModelComposite()
    for each in joint.of_body:
        whole.addJoint(_built(each, is_alone=False), each.placement)
    return whole


def _body_form(body: WholeBody) -> dict[str, Any]:
    own = ("kinematics", "limits", "gains", "part", "base")
    return {"": "WholeBody", **{name: getattr(body, name) for name in own}}


def _body(
    kinematics: ModelKinematics | Foreign, limits: limits.Limits, gains: WholeBodyGains, part: str, base: str
) -> WholeBody | Foreign:
    if isinstance(kinematics, Foreign):
        return kinematics
    return WholeBody(kinematics=kinematics, limits=limits, gains=gains, part=part, base=base)


def _hand_pose(kinematics: ModelKinematics | Foreign) -> HandPose | Foreign:
    return kinematics if isinstance(kinematics, Foreign) else kinematics.forward


def _old_kinematics(**own: Any) -> Foreign:
    return Foreign("kinematics in the form of an older version")


def _picture_form(image: state.Image) -> dict[str, Any]:
    return {"": "Image", "t_ns": image.t_ns}


def _picture(t_ns: int) -> state.Image:
    """An image of that time; its pixels are in its camera's channel."""
    return state.Image(t_ns=t_ns, pixels=_NO_PIXELS)


_NONE = np.zeros(0)
_NONE.flags.writeable = False
_NO_PIXELS = np.zeros((1, 1, 3), np.uint8)
_NO_PIXELS.flags.writeable = False
_SPECIAL: Mapping[type, Callable[[Any], Any]] = {
    pin.SE3: _pose_form,
    state.Image: _picture_form,
    ModelKinematics: _kinematics_form,
    WholeBody: _body_form,
}
_AGAIN = (ModelKinematics, WholeBody)
"""Types whose forms contain values of ours again."""
_BUILT: Mapping[str, Callable[..., Any]] = {
    "HandPoseOf": _hand_pose,
    "Image": _picture,
    "Kinematics": _kinematics,
    "ModelKinematics": _old_kinematics,
    "WholeBody": _body,
}
