"""`PolicyInfo` describes a policy: one value that the policy, its checkpoint, the server's welcome and the
file beside a LeRobot checkpoint share.

Its dict form holds plain values; `RowStatistics` are arrays and are sent beside it.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypedDict, Union, get_args, get_type_hints

from msgspec import Meta, Struct, ValidationError, convert, defstruct, to_builtins
from msgspec.structs import asdict

from robot_runtime.core.method.capabilities import Capabilities, resolve_method
from robot_runtime.core.method.request_parts import RollForward, TrackingLag
from robot_runtime.core.method.sampler_parts import SamplerPart
from robot_runtime.core.method.table import Method
from robot_runtime.core.values.action import MAX_DT_NS, ActionSpec
from robot_runtime.core.values.alignment import Alignment
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import InvalidValueError

MAX_NAME, MAX_OBS_STEPS = 256, 64
"""Most characters of a name, and most observations that a policy may look back on."""


class ExecutorTerms(TypedDict):
    """The arguments of an `Executor` that the policy decides, by name."""

    action_spec: ActionSpec
    method: Method
    max_inference_delay: int | None
    prefix_at_rest: bool
    row_statistics: RowStatistics | None


@dataclass(frozen=True, kw_only=True)
class PolicyInfo:
    """The name of a policy, what it needs of a robot, and what its rows mean.

        spec = ActionSpec(fields=(JointPosition(7),), horizon=16, dt_ns=50_000_000)
        PolicyInfo(name="mine", action_spec=spec)

    is enough for a plain policy: all else has a default.
    """

    name: str
    """Its name in logs and on robots: one line."""
    action_spec: ActionSpec
    """Meaning, number and spacing of the rows it predicts."""
    schema: Schema = None  # type: ignore[assignment]  # `Schema.of(action_spec)`
    """What a robot must offer; by default the parts that the rows move, and nothing else. Its `action_fields`
    are the action spec's."""
    tasks: tuple[str, ...] = ()
    """Task texts it was trained on; empty if any text will do."""
    n_obs_steps: int = 1
    """Number of observations that it takes, including the newest."""
    obs_spacing_ns: int = 0
    """Time from one of them to the next [ns]; 0 means the spacing of the rows."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    """The method features that it supports."""
    weights: str = field(default="", compare=False)
    """Fingerprint of its weights, for logs and datasets; empty: it has none, or it is unknown. A policy that
    is reloaded with other weights is the same policy."""

    def __post_init__(self) -> None:
        _refuse_other(self.action_spec, ActionSpec, "action_spec")
        _refuse_other(self.capabilities, Capabilities, "capabilities")
        spec, schema = self.action_spec, Schema.of(self.action_spec) if self.schema is None else self.schema
        _refuse_other(schema, Schema, "schema")
        fields = schema.action_fields or spec.fields
        if fields != spec.fields:
            raise InvalidValueError(f"its chunks have {spec.fields}, its schema's rows {fields}")
        object.__setattr__(self, "schema", replace(schema, action_fields=fields))
        object.__setattr__(self, "tasks", _texts(self.tasks))
        object.__setattr__(self, "obs_spacing_ns", self.obs_spacing_ns or spec.dt_ns)
        name, can = self.name, self.capabilities
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or not name.isprintable():
            raise InvalidValueError(
                f"a policy's name is a line of 1 to {MAX_NAME} characters, got {name!r:.300}"
            )
        _refuse_other(self.weights, str, "weights")
        _refuse_outside(name, "n_obs_steps", self.n_obs_steps, 1, MAX_OBS_STEPS)
        _refuse_outside(name, "obs_spacing_ns", self.obs_spacing_ns, 1, MAX_DT_NS)
        _refuse_outside(name, "max_inference_delay", can.max_inference_delay, 0, spec.horizon)
        checked_execution_horizon(can.execution_horizon, spec.horizon)
        parts = get_args(SamplerPart)
        if not can.samplers or any(part not in parts for part in can.samplers):
            valid = ", ".join(part.__name__ for part in parts)
            raise InvalidValueError(
                f"policy {name!r} takes samplers {can.samplers}; expected some of {valid}"
            )

    def differences(self, other: "PolicyInfo") -> list[str]:
        """The differences from `other`, one sentence each; empty if they are equal."""
        mine, theirs = vars(self), vars(other)
        return [
            f"its {what} is {value!r:.500}, not {theirs[what]!r:.500}"
            for what, value in mine.items()
            if value != theirs[what] and what != "weights"
        ]

    def run_by(self, method: Method) -> ExecutorTerms:
        """Arguments for `Configuration(**info.run_by(method), limits=..., ...)` of an executor.

        InvalidValueError: the method cannot run it.
        """
        can = self.capabilities
        return {
            "action_spec": self.action_spec,
            "method": resolve_method(method, can, policy=self.name),
            "max_inference_delay": can.trained_delay(method),
            "prefix_at_rest": can.prefix_at_rest,
            "row_statistics": can.row_statistics,
        }

    def with_statistics(self, statistics: RowStatistics | None) -> "PolicyInfo":
        """The info with statistics of the training rows."""
        return replace(self, capabilities=replace(self.capabilities, row_statistics=statistics))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the wire and for files, without `row_statistics`."""
        can, rolled = self.capabilities, self.capabilities.roll_forward
        schema = self.schema.to_dict()
        del schema["action_fields"]  # the action spec has them
        form = _InfoForm(
            name=self.name,
            action_spec=self.action_spec.to_dict(),
            schema=schema,
            tasks=self.tasks,
            n_obs_steps=self.n_obs_steps,
            obs_spacing_ns=self.obs_spacing_ns,
            weights=self.weights,
            capabilities=_CapabilitiesForm(
                samplers=tuple(part.__name__ for part in can.samplers),
                max_inference_delay=can.max_inference_delay,
                recipe=can.recipe,
                roll_forward=None if rolled is None else _ROLL_FORMS[type(rolled)](**vars(rolled)),
                execution_horizon=can.execution_horizon,
                temporal_ensemble=can.temporal_ensemble,
                prefix_at_rest=can.prefix_at_rest,
            ),
        )
        out: dict[str, Any] = to_builtins(form)
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PolicyInfo":
        """Inverse of `to_dict`; ValueError, KeyError or TypeError on anything else."""
        try:
            form = convert(data, _InfoForm)
        except ValidationError as error:
            raise ValueError(str(error)) from error
        can = form.capabilities
        spec = ActionSpec.from_dict(form.action_spec)
        schema = form.schema
        if schema is not None:
            schema = {"action_fields": form.action_spec["fields"]} | schema
        return cls(
            name=form.name,
            action_spec=spec,
            schema=Schema.of(spec) if schema is None else Schema.from_dict(schema),
            tasks=form.tasks,
            n_obs_steps=form.n_obs_steps,
            obs_spacing_ns=form.obs_spacing_ns,
            weights=form.weights,
            capabilities=Capabilities(
                samplers=tuple(_SAMPLERS[name] for name in can.samplers),
                max_inference_delay=can.max_inference_delay,
                recipe=can.recipe,
                roll_forward=_roll_forward(can.roll_forward),
                execution_horizon=checked_execution_horizon(can.execution_horizon, spec.horizon),
                temporal_ensemble=can.temporal_ensemble,
                prefix_at_rest=can.prefix_at_rest,
            ),
        )


def checked_execution_horizon(rows: object, horizon: int) -> int | None:
    """The execution horizon from a user or a file; InvalidValueError if chunks have fewer rows."""
    if rows is None:
        return None
    if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= horizon:
        raise InvalidValueError(
            f"expected an execution horizon of 1 to {horizon} rows, or none, got {rows!r}"
        )
    return rows


# ---- the dict form ---------------------------------------------------------------------------------------


def form_of(part: type) -> type[Struct]:
    """A msgspec struct with the same fields and name, to validate them."""
    fields = list(get_type_hints(part).items())
    return defstruct(part.__name__, fields, tag=True, frozen=True, gc=False, forbid_unknown_fields=True)


_SAMPLERS: dict[str, type[SamplerPart]] = {part.__name__: part for part in get_args(SamplerPart)}
_ROLL_FORMS: dict[type, type[Struct]] = {part: form_of(part) for part in get_args(RollForward)}
_ROLL_PARTS = {form: part for part, form in _ROLL_FORMS.items()}
_Text = Annotated[str, Meta(max_length=4096)]
_Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


class _CapabilitiesForm(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    samplers: tuple[Literal[*_SAMPLERS], ...]  # type: ignore[valid-type]
    max_inference_delay: int = 0
    recipe: _Text = ""
    roll_forward: Union[*_ROLL_FORMS.values()] | None = None  # type: ignore[valid-type]
    execution_horizon: Any = None  # validated by `checked_execution_horizon`
    temporal_ensemble: _Finite | None = None
    prefix_at_rest: bool = False


class _InfoForm(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    name: _Text
    action_spec: dict[str, Any]
    schema: dict[str, Any] | None = None
    tasks: tuple[_Text, ...] = ()
    n_obs_steps: int = 1
    obs_spacing_ns: int = 0
    weights: _Text = ""
    capabilities: _CapabilitiesForm = _CapabilitiesForm(samplers=("ConstantSchedule",))


def _roll_forward(form: Struct | None) -> RollForward | None:
    if form is None:
        return None
    part: RollForward = _ROLL_PARTS[type(form)](**asdict(form))
    if isinstance(part, TrackingLag) and not 0.0 < part.time_constant_s <= sys.float_info.max:
        raise ValueError(f"a time constant is positive and finite, got {part.time_constant_s} s")
    return part


def _texts(tasks: Iterable[str]) -> tuple[str, ...]:
    several = (tasks,) if isinstance(tasks, str) else tuple(tasks)
    for task in several:
        _refuse_other(task, str, "a task")
    return several


def _refuse_other(value: object, kind: type, name: str) -> None:
    if not isinstance(value, kind):
        raise InvalidValueError(
            f"{name} of a PolicyInfo: expected {kind.__name__}, got {type(value).__name__} {value!r:.100}"
        )


def _refuse_outside(policy: str, name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidValueError(f"policy {policy!r} has {name} {value!r:.100}; expected {low} to {high}")


def aligned_info(info: PolicyInfo, alignment: Alignment, *, robot: Schema) -> PolicyInfo:
    """The policy's info with its columns in the robot's order."""
    if alignment.is_plain and alignment.spec == info.action_spec:
        return info
    parts = dict(info.schema.parts)
    for name in alignment.joints.keys() & parts.keys():
        parts[name] = robot.parts[name]
    return replace(
        info,
        action_spec=alignment.spec,
        schema=replace(info.schema, action_fields=alignment.spec.fields, parts=parts),
        capabilities=replace(
            info.capabilities, row_statistics=alignment.statistics(info.capabilities.row_statistics)
        ),
    )
