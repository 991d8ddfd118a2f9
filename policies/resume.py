"""Interrupted training resumes: `Resumable` keeps the state of a training beside its output.

    step 0 ─► ... ─► step 900 ─► kept ─► ... interrupted        the same command, later
                                  └──────────────────────────► step 900 ─► ... ─► the same weights

The state is that of networks, optimisers and random generators, so the result does not depend on
interruptions. A state of other data or settings is refused and stays.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from robot_runtime.errors import InvalidValueError

EVERY_S = 60.0
"""Time between two states that are kept [s]."""


@dataclass(kw_only=True, eq=False)
class Training:
    """Everything that the next steps of a training depend on, besides torch's own generator."""

    tensors: Sequence[Tensor]
    """Weights, and their moving averages."""
    optimisers: Sequence[torch.optim.Optimizer]
    generator: torch.Generator
    pending: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    """Samples of this epoch that are still to come."""
    step: int = 0
    """Number of steps done."""
    loss: float = 0.0
    """Running mean."""


class Resumable:
    """The file of one training's state."""

    def __init__(
        self, path: Path, about: object, *data: Tensor, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """about: the settings of the training, and `data` what it learns from: both identify it."""
        found = hashlib.sha256(repr(about).encode())
        for each in data:
            found.update(each.detach().cpu().contiguous().numpy().tobytes())
        self._path, self._digest = path, found.hexdigest()
        self._now_s, self._kept_s = now_s, now_s()

    def resume(self, training: Training) -> None:
        """Bring a training to the state that was kept, if there is one.

        InvalidValueError: it is damaged, or of a training with other settings or data.
        """
        if not self._path.is_file():
            return
        try:
            kept = torch.load(self._path, map_location="cpu", weights_only=True)
            digest = kept["digest"]
        except Exception as error:  # torch raises many kinds for a damaged file
            raise InvalidValueError(
                f"{self._path} is no state of an interrupted training: remove it to start anew"
            ) from error
        if digest != self._digest:
            raise InvalidValueError(
                f"{self._path} is of an interrupted training with other options or data: repeat that command "
                "to finish it, or remove the file to start anew"
            )
        with torch.no_grad():
            for now, then in zip(training.tensors, kept["tensors"], strict=True):
                now.copy_(then)
        for optimiser, then in zip(training.optimisers, kept["optimisers"], strict=True):
            optimiser.load_state_dict(then)
        training.generator.set_state(kept["generator"])
        torch.set_rng_state(kept["torch"])
        training.pending = kept["pending"].to(training.pending.device)
        training.step, training.loss = kept["step"], kept["loss"]

    def keep(self, training: Training) -> None:
        """Write the state, if it is time to. OSError: it cannot be written."""
        if self._now_s() - self._kept_s < EVERY_S:
            return
        state = {
            "digest": self._digest,
            "tensors": [each.detach() for each in training.tensors],
            "optimisers": [optimiser.state_dict() for optimiser in training.optimisers],
            "generator": training.generator.get_state(),
            "torch": torch.get_rng_state(),
            "pending": training.pending,
            "step": training.step,
            "loss": training.loss,
        }
        part = self._path.with_name(self._path.name + ".part")
        torch.save(state, part)
        part.replace(self._path)
        self._kept_s = self._now_s()

    def finish(self) -> None:
        """Remove the state: the training's result is written."""
        self._path.unlink(missing_ok=True)


def state_path(output: Path) -> Path:
    """Return the file of the state of the training that writes `output`."""
    return output.with_name(f".{output.name}.training")
