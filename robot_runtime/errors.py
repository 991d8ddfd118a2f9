"""The errors people meet: each names what was expected, what came, and the valid choices."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """The known names that are like it, to stand behind a sentence; empty if none is."""
    names = [*known]
    begun = [each for each in names if name and each.startswith(name)]
    like = list(dict.fromkeys(begun + get_close_matches(name, names, n=3, cutoff=0.65)))[:3]
    return f"; did you mean {' or '.join(like)}?" if like else ""


class RobotRuntimeError(Exception):
    """Base of every error this project raises on purpose; its message is meant for a person."""


def placed(error: RobotRuntimeError, where: object) -> RobotRuntimeError:
    """The same error, with the place in front: of its kind if that takes a sentence, else an
    `InvalidValueError`."""
    takes_sentence = type(error).__init__ is Exception.__init__
    kind = type(error) if takes_sentence else InvalidValueError
    return kind(f"{where}: {error}")


class UnknownNameError(RobotRuntimeError):
    """A task, method, policy or benchmark that does not exist."""

    def __init__(self, kind: str, name: str, valid: Iterable[str]) -> None:
        # Kept as arguments, so that the error survives the way out of a worker process.
        super().__init__(kind, name, tuple(sorted(valid)))

    def __str__(self) -> str:
        kind, name, valid = self.args
        return f"unknown {kind} {name!r}{nearest(name, valid) or ';'} valid: {', '.join(valid)}"


class InvalidValueError(RobotRuntimeError, ValueError):
    """A number or a part that somebody chose and that cannot work; says what would."""


class NotShownError(InvalidValueError, KeyError):
    """A camera or sensor that an observation does not have; says how a policy declares it."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError's own is in quotes


class CheckpointError(RobotRuntimeError):
    """A checkpoint that is missing, damaged or does not fit."""


class PolicyError(RobotRuntimeError):
    """A policy gave something that is no answer, or cannot be served; says what."""


class SchemaMismatchError(RobotRuntimeError):
    """Robot and policy do not speak of the same cameras, state or actions; names both sides."""


class DriverError(RobotRuntimeError):
    """A part of a robot that is not what it has to be, or gave what is no measurement; names it."""


class RobotStoppedError(RobotRuntimeError):
    """The robot went to STOP on its own, could not go on, or never moved; says why."""


class NotArmedError(RobotRuntimeError):
    """The robot cannot be armed now; says what is missing."""


class RobotBusyError(RobotRuntimeError):
    """Something else drives this robot; says which process, and since when."""


class ServerUnavailableError(RobotRuntimeError):
    """No inference server answered, or it refused this robot."""


class EnvError(RobotRuntimeError):
    """A simulator gave something that is no observation of its own; says what."""
