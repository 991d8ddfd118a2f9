"""What becomes of an episode once a person has handed everything back: `AfterRelease`."""

from enum import Enum


class AfterRelease(Enum):
    """An option of the session. Labels that look at what the policy does after an intervention need CONTINUE;
    recovery-and-correction data (RaC) ends the episode there."""

    CONTINUE = "continue"
    """The policy goes on, and so does the episode."""
    END = "end"
    """The episode ends, UNKNOWN until somebody says how it went, and the robot stands until a reset."""
