"""The task that the policy is asked for, which a person may change during a run: `AskedTask`.

SetTask            next request        its first rows
----|-------------------|--------------------|----------------------
rows for the old task run on ............... end at this splice
"""

from collections.abc import Callable

from msgspec import structs

from robot_runtime.core.executor import Executor
from robot_runtime.core.values.mismatches import check_task
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.wire.messages import Welcome


class AskedTask:
    """Holds the task text that the next request carries; the control thread owns it."""

    def __init__(
        self,
        task: str,
        *,
        observe: Callable[[RobotState], Observation],
        executor: Executor,
        welcome: Welcome,
        say: Callable[[str], None],
    ) -> None:
        """
        observe: makes an observation of a state; its task text is replaced once a person has changed the
            task.
        say: receives the lines for the run's log.
        """
        self.text = task
        self._observe, self._executor, self._welcome, self._say = observe, executor, welcome, say
        self._is_changed = False
        self._first_id: int | None = None

    def observe(self, state: RobotState) -> Observation:
        """Makes the observation of a state, without images."""
        seen = self._observe(state)
        return structs.replace(seen, task=self.text) if self._is_changed else seen

    def change(self, task: str) -> None:
        """Ask for another task from now on. InvalidValueError: the policy does not know it."""
        info = self._welcome.info
        check_task(task, policy=info.name, tasks=info.tasks)
        self._say(f"task {task!r}: rows for {self.text!r} run on until the first for it come")
        self.text, self._is_changed = task, True
        self._first_id = self._executor.next_request_id
        self._executor.ask_soon()

    def look(self) -> None:
        """Log when the first rows for a new task run; called after each tick."""
        splice = self._executor.last_splice
        if self._first_id is not None and splice is not None and splice.source.request_id >= self._first_id:
            self._first_id = None
            self._say(f"task {self.text!r}: its first rows run, those for the task before have ended")
