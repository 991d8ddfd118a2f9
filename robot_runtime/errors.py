"""The errors that users see: each names what was expected, what was received, and the valid choices."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """Return similar known names, to append to a sentence; empty if there are none."""
    names = [*known]
    begun = [each for each in names if name and each.startswith(name)]
    like = list(dict.fromkeys(begun + get_close_matches(name, names, n=3, cutoff=0.65)))[:3]
    return f"; did you mean {' or '.join(like)}?" if like else ""


class RobotRuntimeError(Exception):
    """Base of every error that this project raises on purpose; its message is meant for the user."""


def placed(error: RobotRuntimeError, where: object) -> RobotRuntimeError:
    """Return the error with the place in front: of its own class if that takes one argument, else an
    `InvalidValueError`."""
    takes_sentence = type(error).__init__ is Exception.__init__
    kind = type(error) if takes_sentence else InvalidValueError
    return kind(f"{where}: {error}")


class UnknownNameError(RobotRuntimeError):
    """A task, method, policy or benchmark that does not exist."""

    def __init__(self, kind: str, name: str, valid: Iterable[str]) -> None:
        # Kept as arguments, so that the error survives pickling from a worker process.
        super().__init__(kind, name, tuple(sorted(valid)))

    def __str__(self) -> str:
        kind, name, valid = self.args
        return f"unknown {kind} {name!r}{nearest(name, valid) or ';'} valid: {', '.join(valid)}"


class InvalidValueError(RobotRuntimeError, ValueError):
    """A chosen value or part that cannot work; the message states what would."""


class NotShownError(InvalidValueError, KeyError):
    """A camera or sensor that an observation lacks; the message states how a policy declares it."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError's own text is in quotes


class CheckpointError(RobotRuntimeError):
    """A checkpoint that is missing, damaged or does not fit."""


class PolicyError(RobotRuntimeError):
    """A policy returned an invalid answer, or cannot be served; the message states why."""


class SchemaMismatchError(RobotRuntimeError):
    """Cameras, state or actions of robot and policy differ; the message names both sides."""


class DriverError(RobotRuntimeError):
    """A part of a robot breaks its contract, or gave no valid measurement; the message names it."""


class RobotStoppedError(RobotRuntimeError):
    """The robot went to STOP on its own, could not continue, or never moved; the message states why."""


class NotArmedError(RobotRuntimeError):
    """The robot cannot be armed now; the message names what is missing."""


class RobotBusyError(RobotRuntimeError):
    """Something else drives this robot; the message names the process, and since when."""


class ServerUnavailableError(RobotRuntimeError):
    """No inference server answered, or it refused this robot."""


class EnvError(RobotRuntimeError):
    """A simulator returned an invalid observation; the message states how."""
