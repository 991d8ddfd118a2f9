"""Interrupted training resumes: `Resumable` keeps the state of a training beside its output.

    step 0 ─► ... ─► step 900 ─► kept ─► ... interrupted        the same command, later
                                  └──────────────────────────► step 900 ─► ... ─► the same weights

The state is that of networks, optimisers and random generators, so the result does not depend on
interruptions. A state of other data or settings is refused and stays.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robot_runtime.errors import InvalidValueError

EVERY_S = 60.0
"""Time between two states that are kept [s]."""


class Resumable:
    """The file of one training's state."""

    def __init__(
        self,
        path: Path,
        about: object,
        *data: Tensor,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """about: the settings of the training, and `data` what it learns from: both identify it."""
        found = hashlib.sha256(repr(about).encode())
        for each in data:
            found.update(each.detach().cpu().contiguous().numpy().tobytes())
        self._path, self._digest = path, found.hexdigest()
        self._now_s = now_s
        self._kept_s = now_s()

    def load(self) -> dict[str, Any] | None:
        """Return the state that was kept; None: there is none.

        InvalidValueError: it is damaged, or of a training with other settings or data.
        """
        if not self._path.is_file():
            return None
        try:
            state: dict[str, Any] = torch.load(self._path, map_location="cpu", weights_only=True)
            digest = state.pop("digest")
        except Exception as error:  # torch raises many kinds for a damaged file
            raise InvalidValueError(
                f"{self._path} is no state of an interrupted training: remove it to start anew"
            ) from error
        if digest != self._digest:
            raise InvalidValueError(
                f"{self._path} is of an interrupted training with other options or data: repeat that command "
                "to finish it, or remove the file to start anew"
            )
        return state

    def keep(self, make: Callable[[], Mapping[str, Any]]) -> None:
        """Write the state that `make` returns, if it is time to. OSError: it cannot be written."""
        if self._now_s() - self._kept_s < EVERY_S:
            return
        part = self._path.with_name(self._path.name + ".part")
        torch.save({**make(), "digest": self._digest}, part)
        part.replace(self._path)
        self._kept_s = self._now_s()

    def finish(self) -> None:
        """Remove the state: the training's result is written."""
        self._path.unlink(missing_ok=True)


def state_path(output: Path) -> Path:
    """Return the file of the state of the training that writes `output`."""
    return output.with_name(f".{output.name}.training")
