"""What happens to an episode once a person has handed every part back: `AfterRelease`."""

from enum import Enum


class AfterRelease(Enum):
    """An option of the session. Labels that depend on what the policy does after an intervention need
    CONTINUE; recovery-and-correction data (RaC) ends the episode there."""

    CONTINUE = "continue"
    """The policy and the episode continue."""
    END = "end"
    """The episode ends, UNKNOWN until its outcome is reported, and the robot holds until a reset."""
