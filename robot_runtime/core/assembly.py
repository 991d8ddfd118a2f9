"""Builds the parts of an executor from its `Configuration`: `Assembly`."""

from robot_runtime.core.arming import Arming
from robot_runtime.core.authority import Handovers
from robot_runtime.core.journal import Configuration, known
from robot_runtime.core.method.request_parts import Synchronous
from robot_runtime.core.method.splice_parts import FromRowZero, NotBeforePlanned
from robot_runtime.core.motion import Motion
from robot_runtime.core.plan.answers import Answers
from robot_runtime.core.plan.blend import Blender
from robot_runtime.core.plan.correction import Corrector
from robot_runtime.core.plan.counts import Counts
from robot_runtime.core.plan.part_latency import PartLatency
from robot_runtime.core.plan.request_planner import RequestPlanner
from robot_runtime.core.plan.timeline import ChunkTimeline
from robot_runtime.core.state_watch import StateWatch
from robot_runtime.core.values.action import RowTiming, rests_of, scales_of

COAST_ROWS = 2
"""Rows that coming to rest takes after the last one."""


class Assembly:
    """The parts of one executor, which owns them."""

    def __init__(self, c: Configuration) -> None:
        """InvalidValueError: the method's numbers do not fit the policy's chunks, or the limits lack a
        part."""
        c.limits.check(c.action_spec, resolves_hand=c.whole_body)
        spec = self.action_spec = c.action_spec.with_gripper_ranges(c.limits.gripper_ranges)
        self.counts = Counts()
        self.parts = PartLatency(c.part_latency_ns, spec)
        self.are_sent = spec.timing is RowTiming.SENT
        """Whether rows are commands of their time, or positions to be at."""
        self.timeline = self._timeline(c)
        self.waits_on_purpose = isinstance(c.method.request, Synchronous)
        self._starts_on_arrival = isinstance(c.method.splice, FromRowZero | NotBeforePlanned)
        has_budget = not (self.waits_on_purpose or self._starts_on_arrival)
        lasts_ns = (spec.horizon - 1) * spec.dt_ns
        self.arming = Arming(c.arming, budget_ns=lasts_ns if has_budget else None)
        self.planner = self._planner(c)
        self.blender = Blender(c.method.blend, dt_ns=spec.dt_ns)
        self.corrector = Corrector(
            c.method.correction, known(c.correction_head), action_spec=c.action_spec, counts=self.counts
        )
        self.answers = Answers(
            spec,
            splice=c.method.splice,
            timeline=self.timeline,
            blender=self.blender,
            corrector=self.corrector,
            counts=self.counts,
            limits=c.limits,
            lead_ns=self.parts.lead_ns,
        )
        self.motion = Motion(
            action_spec=spec,
            timeline=self.timeline,
            limits=c.limits,
            parts=self.parts,
            bodies=known(c.whole_body),
            counts=self.counts,
            period_ns=c.control_period_ns,
        )
        self.handovers = Handovers(f.part for f in spec.fields)
        self.watch = StateWatch(c.state_limits)

    @property
    def _coast_rows(self) -> int:
        return 1 if self.are_sent else COAST_ROWS

    def _timeline(self, c: Configuration) -> ChunkTimeline:
        lead_ns = self.parts.lead_ns
        return ChunkTimeline(
            coast_ns=self._coast_rows * self.action_spec.dt_ns,
            scales=scales_of(self.action_spec),
            rests=rests_of(self.action_spec),
            holds_last=self.are_sent,
            keeps_ns=lead_ns + c.state_limits.timeout_ns if lead_ns else 0,
        )

    def _planner(self, c: Configuration) -> RequestPlanner:
        return RequestPlanner(
            part=c.method.request,
            action_spec=self.action_spec,
            max_inference_delay=c.max_inference_delay,
            prefix_at_rest=c.prefix_at_rest,
            hand_pose=known(c.hand_pose),
            counts=self.counts,
            coast_rows=self._coast_rows,
            row_statistics=c.row_statistics,
            starts_on_arrival=self._starts_on_arrival,
            to_motion_ns=self.parts.lead_ns,
        )
