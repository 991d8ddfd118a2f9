"""Training recipes, which prepare a policy for latency at run time.

A recipe determines how one sample (an observation and the 32 rows planned from it) becomes the network's
input and which rows bear loss. d rows are committed: they run while the policy computes.

    recipe         rows 0..d-1                rows d..H-1                observation         loss
    Plain          as all others              noisy, one time            at t                all rows
    Prefix         clean, own time 1          noisy, one time            at t                d..H-1
    Offset         not in the chunk           noisy, one time            scene t, robot t+d  d..H-1
    Masked         noisy; mask seen by LoRA   noisy, one time            at t                d..H-1
    LambdaMask     clean, marked by position  noisy; see 4 rows back     at t                d..H-1, weighted
    MixedSchedule  clean, own time 1          each its own time, or one  at t                d..H-1
    Residual       no flow: a small head learns what a newer observation adds to a row of a frozen policy

The recipe is saved in the checkpoint and determines the policy's capabilities. No torch here.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from policies.files import refuse_oversized, value_of
from robot_runtime.errors import InvalidValueError, UnknownNameError


@dataclass(frozen=True, kw_only=True)
class Plain:
    """Conditional flow matching without commitments. Demonstrations planned under one are left out, since
    their first rows belong to an older observation and no input marks them as such."""

    @property
    def max_delay(self) -> int:
        """No committed rows."""
        return 0


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """Training-time RTC (arXiv 2512.05964): committed rows are shown clean, at flow time 1, without loss."""

    max_delay: int = 12
    """Most committed rows, d; drawn uniformly from 1 to it."""
    probability: float = 0.6
    """Share of samples without commitments of their own that get a prefix. The paper draws d from 0 to
    max_delay every time; our demonstrations with commitments make up the rest."""
    noise: float = 0.01
    """Noise on prefix rows [standard deviations]: at run time they come from a plan, not a demonstrator."""

    def __post_init__(self) -> None:
        _refuse_no_prefix(self.max_delay)


@dataclass(frozen=True, kw_only=True)
class Offset:
    """VLASH (arXiv 2512.01031, section 3): old scene, robot state rolled forward to where the chunk begins.

        t                 t+k                          t+H
        |--- committed ---|------- rows with loss ------|--- no row: no loss ---|
        scene seen        robot state, row 0 due

    k is uniform in 0..max_delay. The rolled-forward joints follow the rows of the sample as a first-order
    servo does; with a lag of zero they equal the rows, which is VLASH's own proxy (its a_{t+k-1}, the action
    that ends at t+k, is our row k, which is due at t+k).
    """

    max_delay: int = 12
    shared_observation: bool = False
    """Puts all branches k of a sample in one sequence with shared scene tokens. This needs a network in which
    the robot's state is a token of the branch, and so training from scratch."""
    tracking_lag_s: float = 0.03
    """Lag of the servos [s]; it has to equal that of the run-time predictor which rolls the state forward."""


@dataclass(frozen=True, kw_only=True)
class Masked:
    """REMAC (arXiv 2601.20130): LoRA on a frozen policy; only the LoRA path knows which rows are open.

    Self-conditioned curriculum: with probability 1 - sigma the noisy chunk is made from the frozen policy's
    chunk instead of the demonstration, while the target remains the demonstration's; sigma falls linearly
    from 1 to 0. The paper's L_m and L_delta have the same residual (both weighted 0.01), so they are one term
    here; its code adds L_keep, which keeps the committed rows' velocity at the frozen one's.
    """

    max_delay: int = 12
    """d is uniform in 0..max_delay where the demonstration has no commitments of its own."""
    rank: int = 4
    alpha: float = 8.0
    dropout: float = 0.1
    """Dropout of the LoRA path in training."""
    sigma_start: float = 1.0
    """Share of samples whose noisy chunk is the demonstration's, at the first step."""
    sigma_end: float = 0.0
    """The same at the last step."""
    keep_weight: float = 0.5
    """Weight of L_keep relative to L_m + L_delta together as 1: all three have 0.01 in the code."""
    num_steps: int = 5
    """Euler steps of the frozen policy's chunks."""


@dataclass(frozen=True, kw_only=True)
class LambdaMask:
    """Xiaomi-Robotics-0 (arXiv 2602.12684): clean prefix, lambda-shaped attention, re-weighted loss.

    Committed rows are clean but have the flow time of all others; open rows are distinguished by a jump of
    their position. Rows attend to the context, themselves and `window` earlier rows, so that only the first
    open rows can copy from the prefix. The loss weights numbers by the error of a sampled chunk. The paper's
    position jump is 10 with up to 6 rows; ours grows with the rows, so that no position has two meanings.
    """

    max_delay: int = 12
    """Most committed rows, drawn uniformly from 1 to it (the paper: 6)."""
    probability: float = 0.5
    """Share of samples without commitments of their own that get a prefix."""
    window: int = 4
    """Number of earlier rows that a row attends to."""
    position_offset: int = 12
    """Jump of the position at the first open row; at least max_delay."""
    hide_probability: float = 0.5
    """Probability that a prefix row, except the last `num_always_seen`, is hidden from open rows."""
    num_always_seen: int = 2
    weight_min: float = 0.5
    """Bounds of the loss weights, |sampled - demonstrated| over its mean."""
    weight_max: float = 5.0
    num_steps: int = 5
    """Euler steps of the sampled chunk."""

    def __post_init__(self) -> None:
        _refuse_no_prefix(self.max_delay)
        if self.max_delay > self.position_offset:
            raise InvalidValueError(
                f"position_offset must be at least max_delay, {self.max_delay}; got {self.position_offset}"
            )


@dataclass(frozen=True, kw_only=True)
class MixedSchedule:
    """FASTER (arXiv 2603.19199, equations 5 to 11): per-row flow times of the horizon-aware schedule.

    One draw per sample decides between that schedule and one time for all open rows; committed rows are
    clean at time 1. The paper's time is 1 minus ours. Open rows that are already clean still bear loss.
    """

    max_delay: int = 12
    """d is uniform in 0..max_delay where the demonstration has no commitments of its own."""
    alpha: float = 0.6
    """Exponent of the hit times: smaller lets the middle of the chunk finish later."""
    probability: float = 0.5
    """Probability of the horizon-aware schedule, the paper's p."""
    num_steps: int = 10
    """Euler steps N that it is trained for: the first open row is final after one, u0 = (N - 1) / N."""


@dataclass(frozen=True, kw_only=True)
class Residual:
    """A2C2 (arXiv 2509.23224): a small head corrects the frozen policy's rows with the newest observation.

        t_obs            t_obs + k        t_obs + k + lead
        chunk seen from  newest seen      row k + lead: demonstrated from the newest minus the chunk's

    k is uniform in 0..max_age: the observation's age covers both the delay and the position in the chunk.
    """

    max_age: int = 20
    """Oldest chunk that is corrected [rows]."""
    lead: int = 1
    """Rows from the newest observation to the corrected row. Our demonstrator plans from the measured state,
    so its row 0 equals the current setpoint and carries no information."""
    width: int = 192
    """Width of the head's two hidden layers."""

    @property
    def max_delay(self) -> int:
        """The frozen policy takes no committed rows."""
        return 0


Recipe = Plain | Prefix | Offset | Masked | LambdaMask | MixedSchedule | Residual
NEEDS_INIT = (Masked, Residual)
"""Recipes that add something to a frozen policy."""
_BY_NAME: Mapping[str, type[Recipe]] = {
    "plain": Plain,
    "prefix": Prefix,
    "offset": Offset,
    "masked": Masked,
    "lambda-mask": LambdaMask,
    "mixed-schedule": MixedSchedule,
    "residual": Residual,
}
RECIPE_NAMES = tuple(_BY_NAME)


def recipe_name(recipe: Recipe) -> str:
    """The name of a recipe on the command line."""
    return next(name for name, cls in _BY_NAME.items() if type(recipe) is cls)


def refuse_beyond_chunk(recipe: Recipe, horizon: int) -> None:
    """InvalidValueError: the recipe's longest delay leaves no row of a chunk of this horizon to learn."""
    if recipe.max_delay >= horizon:
        raise InvalidValueError(
            f"max_delay lies in 0..{horizon - 1} for chunks of {horizon} rows, got {recipe.max_delay}"
        )


def _refuse_no_prefix(max_delay: int) -> None:
    if max_delay < 1:
        raise InvalidValueError(
            f"max_delay is 1 or more where committed rows are learned, got {max_delay}; recipe plain has none"
        )


def make_recipe(name: str, **options: object) -> Recipe:
    """The recipe of that name; UnknownNameError or InvalidValueError lists the valid names or options."""
    if name not in _BY_NAME:
        raise UnknownNameError("recipe", name, _BY_NAME)
    valid = [field.name for field in fields(_BY_NAME[name])]
    unknown = sorted(set(options) - set(valid))
    if unknown:
        raise InvalidValueError(
            f"recipe {name} has no option {', '.join(unknown)}; it has: {', '.join(valid) or 'none'}"
        )
    return _BY_NAME[name](**options)  # type: ignore[arg-type]


def recipe_to_dict(recipe: Recipe) -> dict[str, object]:
    """A recipe as plain values for a file."""
    return {"name": recipe_name(recipe), **asdict(recipe)}


def recipe_from_dict(values: Mapping[str, object]) -> Recipe:
    """The inverse of `recipe_to_dict`; ValueError, KeyError or UnknownNameError if the values are invalid."""
    options = dict(values)
    name = str(options.pop("name"))
    if name not in _BY_NAME:
        raise UnknownNameError("recipe", name, _BY_NAME)
    recipe: Recipe = value_of(_BY_NAME[name], options)
    refuse_oversized(recipe)
    return recipe
