"""The one seam between the server and whatever predicts action chunks."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from robot_runtime.core.action import ActionSpec
from robot_runtime.core.method import SamplerPart
from robot_runtime.core.schema import Schema
from robot_runtime.core.shapes import Float
from robot_runtime.core.state import Observation


class Policy(Protocol):
    """Turns an observation into an action chunk, row by row if it can."""

    @property
    def name(self) -> str:
        """What to call it in logs and to clients."""
        ...

    @property
    def schema(self) -> Schema:
        """What a robot must offer."""
        ...

    @property
    def action_spec(self) -> ActionSpec:
        """Meaning, number and spacing of the rows it predicts."""
        ...

    @property
    def tasks(self) -> tuple[str, ...]:
        """Task texts it was trained on; empty if any text will do."""
        ...

    def infer(
        self,
        observation: Observation,
        *,
        prev_action_chunk: Float[np.ndarray, "n D"] | None = None,
        inference_delay: int = 0,
        sampler: SamplerPart,
        seed: int,
    ) -> Iterator[Float[np.ndarray, "n D"]]:
        """Yield blocks of consecutive rows as they become final, from row 0 to row H-1.

        prev_action_chunk: what the robot's plan says from the observation on, in the action spec's own
            columns; row 0 is due at the observation.
        inference_delay: how many of those rows the robot is committed to, d <= n.
        seed: of the noise; the same arguments give the same rows.
        ValueError: the observation or the sampler part does not fit this policy, in words for a person.
        """
        ...
