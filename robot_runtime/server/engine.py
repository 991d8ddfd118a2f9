"""The worker thread that runs the policy, one job at a time.

    network thread                worker thread
    start(job) ─── queue ───────► Policy.infer, block by block
    results()  ◄── deque, bell ── Block | Failure | Stopped
    stop()     ─── flag ────────► looked at between blocks

Rows are handed over as each block becomes final; the network never waits for the policy. A request starts
when those before it have ended, so answers that it follows are complete.
"""

import logging
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

import numpy as np
import pinocchio as pin
from msgspec import Struct

from policies.policy import Policy
from robot_runtime.clock import Clock
from robot_runtime.core.sampler_parts import PREFIXLESS, SamplerPart
from robot_runtime.core.schedule import answer_rows
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Image, Observation, RobotState
from robot_runtime.wire.arrays import is_finite
from robot_runtime.wire.jobs import Job
from robot_runtime.wire.messages import ErrorCode

logger = logging.getLogger(__name__)
_JOIN_TIMEOUT_S = 2.0


class Block(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """Rows that are final."""

    job: Job
    first_row: int
    rows: np.ndarray
    is_last: bool
    infer_ns: int
    """Since the start of inference [ns]."""


class Failure(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """The policy did not give a chunk; `message` is fit for the client."""

    job: Job
    code: ErrorCode
    message: str


class Stopped(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """The job was given up between two blocks."""

    job: Job


Result = Block | Failure | Stopped


class Engine:
    """Runs one policy. The thread that calls `start` collects `results` and closes it."""

    def __init__(self, policy: Policy, *, clock: Clock, ring: Callable[[], None]) -> None:
        """ring: called from the worker thread whenever there are results."""
        self.is_idle = True
        self._policy = policy
        self._clock = clock
        self._ring = ring
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._results: deque[Result] = deque()
        self._warm: SimpleQueue[Exception | None] = SimpleQueue()
        self._stopped_job: Job | None = None
        self._running: Job | None = None
        self._thread = Thread(target=self._run, name="policy", daemon=True)

    def warm_up(self) -> None:
        """Start the thread and infer a few times on it, so that no robot pays for first calls."""
        self._thread.start()
        error = self._warm.get()
        if error is not None:
            raise error

    def start(self, job: Job) -> None:
        """Run a job; only when idle."""
        assert self.is_idle
        self.is_idle = False
        self._running = job
        self._jobs.put(job)

    @property
    def running(self) -> Job | None:
        """The job the worker is at."""
        return self._running

    def stop(self) -> None:
        """Give up the running job at its next block."""
        self._stopped_job = self._running

    def results(self) -> list[Result]:
        """What the worker has done since the last call, in order."""
        out = []
        while self._results:
            result = self._results.popleft()
            if not isinstance(result, Block) or result.is_last:
                self.is_idle, self._running = True, None
            out.append(result)
        return out

    def close(self) -> None:
        """End the thread; one that is deep in a policy is left to die with the process."""
        self._stopped_job = self._running
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join(_JOIN_TIMEOUT_S)

    def _run(self) -> None:
        try:
            warm_up(self._policy)
        except Exception as error:
            self._warm.put(error)
            return
        self._warm.put(None)
        while (job := self._jobs.get()) is not None:
            self._infer(job)

    def _infer(self, job: Job) -> None:
        try:
            self._infer_blocks(job)
        except ValueError as error:
            self._post(Failure(job=job, code=ErrorCode.BAD_REQUEST, message=str(error)))
        except Exception:
            logger.exception("policy %s failed", self._policy.name)
            message = f"policy {self._policy.name} failed; the server's log says why"
            self._post(Failure(job=job, code=ErrorCode.INTERNAL, message=message))

    def _infer_blocks(self, job: Job) -> None:
        started_ns = self._clock.now_ns()
        request, num_rows = job.request, 0
        num_expected = answer_rows(
            request.sampler,
            horizon=self._policy.action_spec.horizon,
            inference_delay=request.inference_delay,
        )
        blocks = self._policy.infer(
            request.observation,
            prev_action_chunk=request.prev_action_chunk,
            inference_delay=request.inference_delay,
            sampler=request.sampler,
            seed=request.seed,
        )
        for rows in blocks:
            rows = self._checked(rows, num_rows)
            first_row, num_rows = num_rows, num_rows + len(rows)
            self._post(
                Block(
                    job=job,
                    first_row=first_row,
                    rows=rows,
                    is_last=num_rows >= num_expected,
                    infer_ns=self._clock.now_ns() - started_ns,
                )
            )
            if num_rows >= num_expected:
                return
            if self._stopped_job is job:
                self._post(Stopped(job=job))
                return
        raise RuntimeError(f"the policy ended after {num_rows} of {num_expected} rows")

    def _checked(self, rows: np.ndarray, first_row: int) -> np.ndarray:
        spec = self._policy.action_spec
        rows = np.ascontiguousarray(rows, dtype=np.float64 if rows.dtype == np.float64 else np.float32)
        if rows.ndim != 2 or rows.shape[1] != spec.dim or not 1 <= len(rows) <= spec.horizon - first_row:
            raise RuntimeError(
                f"the policy gave rows of shape {rows.shape} at row {first_row}; "
                f"expected up to {spec.horizon - first_row} rows of {spec.dim} numbers"
            )
        if not is_finite(rows):
            raise RuntimeError(f"the policy gave NaN or infinite numbers from row {first_row}")
        return rows

    def _post(self, result: Result) -> None:
        self._results.append(result)
        self._ring()


def zero_observation(schema: Schema, task: str) -> Observation:
    """An observation of the right shape with nothing in it."""
    zeros = np.zeros(3)
    state = RobotState(
        t_ns=0,
        q=np.zeros(schema.num_joints),
        dq=np.zeros(schema.num_joints),
        X_BE=pin.SE3.Identity(),
        gripper_width=0.0 if schema.has_gripper else None,
        x_WB=zeros if schema.has_base else None,
        V_WB_B=zeros if schema.has_base else None,
    )
    images = {
        name: Image(t_ns=0, pixels=np.zeros((height, width, 3), np.uint8))
        for name, (height, width) in schema.cameras.items()
    }
    environment_state = np.zeros(schema.environment_state_dim)
    return Observation(state=state, images=images, environment_state=environment_state, task=task)


def warm_up(policy: Policy, num_calls: int = 3) -> None:
    """Infer on nothing with every sampler that the policy says it takes."""
    observation = zero_observation(policy.schema, next(iter(policy.tasks), ""))
    rows = np.zeros((policy.action_spec.horizon, policy.action_spec.dim))
    for kind in policy.samplers:
        planned = (None, 0) if kind in PREFIXLESS else (rows, 1)
        for seed in range(num_calls):
            _exhaust(policy, observation, planned, kind(), seed)


def _exhaust(
    policy: Policy,
    observation: Observation,
    planned: tuple[np.ndarray | None, int],
    sampler: SamplerPart,
    seed: int,
) -> None:
    rows, delay = planned
    for _ in policy.infer(
        observation, prev_action_chunk=rows, inference_delay=delay, sampler=sampler, seed=seed
    ):
        pass
