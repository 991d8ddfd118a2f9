"""Events of a run, counted by the executor where they happen: `Counts`."""

from dataclasses import dataclass

STALLED = (
    "the control loop stalled: a tick came half a control period late or more, and the commands go on from "
    "where they were"
)


@dataclass(kw_only=True)
class Counts:
    """Counts of events; the executor and its parts write them, all others only read."""

    starved_ticks: int = 0
    """Ticks without a row to run, from the start, of a method that does not stop on purpose."""
    skipped_rows: int = 0
    """Rows whose time had passed when they came: they were never sent."""
    late_answers: int = 0
    """Answers whose rows were all past."""
    delays_clamped: int = 0
    """Requests whose measured delay was more rows than the policy was trained for, or than a chunk has."""
    horizons_shortened: int = 0
    """Requests made before the execution horizon was over, because s + d rows do not fit in a chunk."""
    asked_at_rest: int = 0
    """Requests that waited until the robot was at rest, because answers come too late for a moving one."""
    prefixes_distrusted: int = 0
    """1 if committed rows lay so far outside the training data that requests carry none any more."""
    far_seams: int = 0
    """Chunks whose first row lay so far from the plan that the robot cannot be there in time."""
    first_far_seam: float = 0.0
    """Distance of the first of those, the largest joint [rad] or the end effector [m]."""
    far_answers: int = 0
    """Answers that were refused because their rows lie far outside the robot's ranges."""
    matches_refused: int = 0
    """Chunks aligned by time because the robot was too far from all of their path."""
    unreached_ticks: int = 0
    """Ticks whose joints leave the end effector farther from its plan than `HandError.is_reached` allows."""
    stalls: int = 0
    """Ticks that came half a control period late or more: the commands continued from the last one."""
    clock_steps_back: int = 0
    """Ticks whose time was not later than the one before: the commands advanced by the control period, or the
    robot held and asked anew if the clock had gone back by more than that."""
    sideways_ticks: int = 0
    """Ticks in which the plan moved a differential base sideways: that velocity was sent as 0."""
    odometry_jumps: int = 0
    """Times the robot held and asked anew because odometry had jumped."""

    corrected_rows: int = 0
    """Rows that the robot corrected by a newer observation."""
    corrections_clipped: int = 0
    """How many of those corrections were larger than the method allows."""
    corrections_skipped: int = 0
    """Rows run as planned because the observation or the correction held NaN or infinite numbers."""

    def fallbacks(self) -> dict[str, int]:
        """One sentence for each deviation from the method, with how often it has occurred."""
        sentences = {
            "the latency is more rows than the policy was trained for; d is cut to its maximum": (
                self.delays_clamped
            ),
            "execution horizon and delay are more rows than a chunk has; the robot asks earlier": (
                self.horizons_shortened
            ),
            "answers come too late for a robot that moves: it runs each chunk to its end, stops and asks; a "
            "quicker server or longer chunks would keep it in motion": self.asked_at_rest,
            "the committed rows lie far outside what the policy was trained on; it is asked "
            "without them from now on": self.prefixes_distrusted,
            f"a chunk begins {self.first_far_seam:.2g} rad or m from the plan; the robot goes there within "
            "its limits, later than the chunk says": self.far_seams,
            "the robot is too far from a chunk's path; the chunk is aligned by time": self.matches_refused,
            STALLED: self.stalls,
            "the clock stood still or went back; the commands go on by the control period, and by more than "
            "that the robot holds and asks anew": self.clock_steps_back,
            "the policy drives a differential base sideways (vy = 0 in its limits); that is sent as 0": (
                self.sideways_ticks
            ),
            "odometry jumped; the plan and all open answers were dropped": self.odometry_jumps,
            "the hand is sent short of where the plan has it: out of reach, or faster than it can go": (
                self.unreached_ticks
            ),
            "a correction is larger than the method allows; it is clipped": self.corrections_clipped,
            "a correction is not finite; the row runs as planned": self.corrections_skipped,
        }
        return {sentence: count for sentence, count in sentences.items() if count > 0}
