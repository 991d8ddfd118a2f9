"""Demonstrations as a LeRobot v3 dataset: `DatasetRecorder` takes what was seen and what was commanded.

    frame k         observation at start + k / fps          action: what was commanded from it on

LeRobot stamps frame k with k / fps, whatever the clock said; when things were really captured stands beside
it, as integers in nanoseconds (`capture.time_ns.*`).
"""

import contextlib
import errno
import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from robot_runtime.core.values.action import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    JointCommand,
    PoseCommand,
)
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.core.values.transforms import pose_from_quaternion, rotation_to_6d
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.robot.dataset_folder import DatasetFolder
from robot_runtime.robot.pace import Pace
from robot_runtime.robot.staged_episode import RecordingFailedError

HAND_NAMES = tuple(f"hand_{name}" for name in ("x", "y", "z", *(f"rotation_{i}" for i in range(6))))
"""Position, and the first two columns of the rotation."""

LEROBOT_COLUMNS = {"timestamp", "frame_index", "episode_index", "index", "task_index"}
"""Those that LeRobot adds to every dataset."""


def joint_names(num_joints: int) -> tuple[str, ...]:
    return tuple(f"joint_{i}" for i in range(num_joints))


def joint_velocity_names(num_joints: int) -> tuple[str, ...]:
    return tuple(f"joint_velocity_{i}" for i in range(num_joints))


def named_numbers(state: RobotState) -> dict[str, float]:
    """Every number of a state but where its base is, by the name it has in a recording."""
    n = len(state.q)
    named = [(joint_names(n), state.q), (joint_velocity_names(n), state.dq)]
    if state.gripper_width is not None:
        named.append((("gripper_width",), np.array([state.gripper_width])))
    if state.X_BE is not None:
        hand = [state.X_BE.translation, rotation_to_6d(state.X_BE.rotation)]
        named.append((HAND_NAMES, np.concatenate(hand)))
    if state.V_WB_B is not None:
        named.append((("base_vx", "base_vy", "base_wz"), state.V_WB_B))
    return {name: float(x) for names, numbers in named for name, x in zip(names, numbers, strict=True)}


class RecorderUnavailableError(RobotRuntimeError):
    """LeRobot, or what it writes datasets with, is not installed."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What a dataset holds, besides what the robot's schema says."""

    schema: Schema
    """Of the robot: its joints, gripper and base; every camera named in it is recorded."""
    fps: int = 20
    robot_type: str = "robot"
    extra: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Further columns of float32, by name: shapes."""

    def __post_init__(self) -> None:
        """InvalidValueError: LeRobot or its videos have no place for it."""
        if self.fps < 1:
            raise InvalidValueError(f"a recording has at least one frame a second, got {self.fps}")
        for camera, (height, width) in self.schema.cameras.items():
            if "/" in camera:
                raise InvalidValueError(f"LeRobot's columns have no / in their names, camera {camera!r} has")
            if height % 2 or width % 2:
                raise InvalidValueError(
                    f"a video's height and width are even numbers of pixels, camera {camera!r} has "
                    f"{height} x {width}"
                )

    def state_names(self) -> list[str]:
        """What the numbers of `observation.state` are, in order."""
        n = self.schema.num_joints
        names = [*joint_names(n), *joint_velocity_names(n)]
        names += ["gripper_width"] if self.schema.has_gripper else []
        names += HAND_NAMES
        return names + (["base_vx", "base_vy", "base_wz"] if self.schema.has_base else [])

    def features(self, action_names: list[str]) -> dict[str, dict[str, Any]]:
        """The columns, as LeRobot wants them declared."""
        vectors = {"observation.state": self.state_names(), "action": action_names}
        if self.schema.environment_state_dim:
            vectors["observation.environment_state"] = [
                f"scene_{i}" for i in range(self.schema.environment_state_dim)
            ]
        if self.schema.has_base:
            vectors["observation.pose_world_base"] = ["x", "y", "yaw"]
        out: dict[str, dict[str, Any]] = {
            name: {"dtype": "float32", "shape": (len(names),), "names": names}
            for name, names in vectors.items()
        }
        for camera, (height, width) in self.schema.cameras.items():
            shape = (height, width, 3)
            names = ["height", "width", "channels"]
            out[f"observation.images.{camera}"] = {"dtype": "video", "shape": shape, "names": names}
        for clock in ("state", *self.schema.cameras):
            out[f"capture.time_ns.{clock}"] = {"dtype": "int64", "shape": (1,), "names": None}
        for name, size in self.extra.items():
            out[name] = {"dtype": "float32", "shape": size, "names": None}
        return out

    def refuse_other(self, info: Mapping[str, Any], folder: Path) -> None:
        """InvalidValueError: a dataset with this info.json cannot be gone on with; names what differs."""
        if (info["fps"], info.get("robot_type")) != (self.fps, self.robot_type):
            raise InvalidValueError(
                f"{folder} is of {info.get('robot_type')!r} at {info['fps']} frames a second, the recording "
                f"of {self.robot_type!r} at {self.fps}"
            )
        own, there = self.features([]), info["features"]
        for name in sorted((own.keys() ^ there.keys()) - LEROBOT_COLUMNS):
            side = "the recording" if name in own else "the dataset"
            raise InvalidValueError(f"only {side} has a column {name!r}; {folder} cannot be gone on with")
        for name in own.keys() - {"action"}:
            what, has = own[name], there[name]
            if (what["dtype"], list(what["shape"])) != (has["dtype"], list(has["shape"])):
                raise InvalidValueError(
                    f"column {name!r} is {has['dtype']} {tuple(has['shape'])} in {folder}, "
                    f"{what['dtype']} {tuple(what['shape'])} in the recording"
                )
            _refuse_other_names(f"column {name!r}", has["names"], what["names"])


class DatasetRecorder:
    """Writes episodes into a folder of its own; an episode that is dropped leaves nothing.

    with DatasetRecorder(folder, recording) as recorder:
        recorder.add(observation, command)      once every 1 / fps
        recorder.end_episode(keep=True)

    Stock LeRobot reads the finished episodes at any moment, also after a kill, see `DatasetFolder`.
    """

    def __init__(self, folder: Path, recording: Recording, *, resume: bool = False) -> None:
        """
        resume: go on in a dataset that is there, of the same columns; a folder that is not there is made.
        InvalidValueError: the folder exists, or what is in it does not fit. RecorderUnavailableError: LeRobot
            cannot write here.
        """
        self._recording = recording
        self._writer = _dataset_class()
        self._folder = DatasetFolder(folder, resume=resume)
        self._dataset: Any = None
        self._action_names: list[str] | None = None
        self._pace = Pace(recording.fps, recording.schema.cameras)
        try:
            if self._folder.info is not None:
                recording.refuse_other(self._folder.info, folder)
                self._action_names = self._folder.info["features"]["action"]["names"]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def num_episodes(self) -> int:
        """Episodes in the dataset: those that were kept, and those that were there."""
        return self._folder.num_episodes

    @property
    def leftovers(self) -> list[str]:
        """Files of an unfinished episode that a killed run had left and that were removed."""
        return self._folder.leftovers

    def notes(self, name: str) -> list[Any]:
        """What `end_episode` was given under `name` for each episode."""
        return self._folder.notes(name)

    def add(
        self,
        observation: Observation,
        command: Command,
        extra: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Take one frame.

        InvalidValueError: names what is missing, not finite, of another size or out of step with `fps`; the
            frame is not taken, the episode can go on or be ended.
        RecordingFailedError: it cannot be written.
        """
        frame = self._frame(observation, extra or {})
        frame["action"], names = _action(command)
        for name, values in frame.items():
            if isinstance(values, np.ndarray) and not np.isfinite(values).all():
                raise InvalidValueError(f"{name} of a frame to record has NaN or infinite numbers")
        if self._action_names is not None:
            _refuse_other_names("action", self._action_names, names)
        self._pace.check(observation)
        with self._told():
            if self._dataset is None:
                self._dataset = self._create(names)
            self._dataset.add_frame(frame)
        self._action_names = names
        self._pace.took(observation)

    def end_episode(self, *, keep: bool, notes: Mapping[str, int | str] | None = None) -> None:
        """Write the frames since the last end, or forget them.

        notes: kept with the episode, see `notes`.
        RecordingFailedError: it cannot be written; those before it are as they were.
        """
        self._pace = Pace(self._recording.fps, self._recording.schema.cameras)
        dataset, self._dataset = self._dataset, None
        if dataset is None:
            return
        with self._told():
            if keep:
                dataset.save_episode(parallel_encoding=False)  # a kill must leave nobody who still writes
                dataset.finalize()
                self._folder.take(dataset.root, notes or {})
            shutil.rmtree(dataset.root.parent)

    def close(self) -> None:
        """Let the folder go; frames of an episode that was not ended are forgotten."""
        self._dataset = None
        self._folder.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever goes wrong in writing, said in one sentence."""
        try:
            yield
        except Exception as error:  # LeRobot, PyAV, Pillow and pyarrow each raise their own
            why = f"{type(error).__name__}: {error}"
            if isinstance(error, OSError) and error.errno == errno.EFBIG:
                why = "a file would be larger than this user may write"
            elif isinstance(error, RecordingFailedError):
                why = str(error)
            elif self._folder.is_full:
                why = "the disk is full"
            count = self._folder.num_episodes
            raise RecordingFailedError(
                f"episode {count} cannot be written to {self._folder.root}: {why}; "
                f"the {count} before it are complete, --resume goes on after them"
            ) from error

    def _create(self, action_names: list[str]) -> Any:
        """A dataset for one episode, which the folder takes when it is whole."""
        recording = self._recording
        return self._writer.create(
            repo_id=self._folder.root.name,
            root=self._folder.staging(),
            fps=recording.fps,
            features=recording.features(action_names),
            robot_type=recording.robot_type,
            use_videos=True,
            rgb_encoder=_h264(),
            video_backend="pyav",
        )

    def _frame(self, observation: Observation, extra: Mapping[str, np.ndarray]) -> dict[str, Any]:
        schema, state = self._recording.schema, observation.state
        frame: dict[str, Any] = {
            "observation.state": _state(self._recording, state),
            "task": observation.task,
            "capture.time_ns.state": np.array([state.t_ns]),
        }
        if schema.environment_state_dim:
            frame["observation.environment_state"] = _checked(
                "the environment state", observation.environment_state, (schema.environment_state_dim,)
            )
        if state.x_WB is not None and schema.has_base:
            frame["observation.pose_world_base"] = state.x_WB.astype(np.float32)
        for camera, (height, width) in schema.cameras.items():
            if camera not in observation.images:
                have = ", ".join(observation.images) or "none"
                raise InvalidValueError(f"no picture of camera {camera!r} to record, there are {have}")
            image = observation.images[camera]
            if image.pixels.shape != (height, width, 3):
                raise InvalidValueError(
                    f"camera {camera!r} is recorded at {(height, width, 3)}, got {image.pixels.shape}"
                )
            frame[f"observation.images.{camera}"] = image.pixels
            frame[f"capture.time_ns.{camera}"] = np.array([image.t_ns])
        for name, shape in self._recording.extra.items():
            if name not in extra:
                raise InvalidValueError(f"the recording declares {name!r}, the frame has none")
            frame[name] = _checked(name, extra[name], shape)
        return frame


def _refuse_other_names(column: str, has: list[str] | None, names: list[str] | None) -> None:
    if list(has or ()) != list(names or ()):
        raise InvalidValueError(f"the dataset's {column} is {has}, the recording's is {names}")


def _dataset_class() -> Any:
    try:
        from lerobot.datasets.lerobot_dataset import LeRobotDataset
    except ImportError as error:
        raise RecorderUnavailableError(
            f"recording needs LeRobot with its datasets: pip install 'robot-runtime[lerobot]' ({error})"
        ) from error
    _hush()
    return LeRobotDataset


def _hush() -> None:
    """No lines of the encoder's, none for every picture that cannot be written, and no bar of LeRobot's for
    every episode: whoever records shows progress, and `DatasetRecorder` says what fails."""
    import av.logging
    import datasets

    av.logging.set_libav_level(av.logging.ERROR)
    datasets.disable_progress_bars()
    for name in ("image_writer", "dataset_writer", "video_utils"):
        logging.getLogger(f"lerobot.datasets.{name}").setLevel(logging.CRITICAL)


def _h264() -> Any:
    """Every viewer plays it, and small pictures are encoded in no time; LeRobot's own default is AV1."""
    from lerobot.configs.video import RGBEncoderConfig

    return RGBEncoderConfig(vcodec="h264", crf=18)


def _state(recording: Recording, state: RobotState) -> Float[np.ndarray, " S"]:
    schema = recording.schema
    if state.X_BE is None:
        raise InvalidValueError("a recording needs the hand pose X_BE, the state has none")
    if schema.has_gripper and state.gripper_width is None:
        raise InvalidValueError("the robot has a gripper, the state has no gripper_width")
    if schema.has_base and (state.V_WB_B is None or state.x_WB is None):
        raise InvalidValueError("the robot has a mobile base, the state has no x_WB or V_WB_B")
    numbers = named_numbers(state)
    return np.array([numbers[name] for name in recording.state_names()], dtype=np.float32)


def _action(command: Command) -> tuple[Float[np.ndarray, " D"], list[str]]:
    """What was commanded: base, then arm, then gripper; a hand by its position and the rotation's columns."""
    numbers: list[float] = []
    names: list[str] = []
    match command.base:
        case BasePoseCommand(x_WB=x):
            numbers, names = [*x], ["base_x", "base_y", "base_yaw"]
        case BaseTwistCommand(V_WB_B=twist):
            numbers, names = [*twist], ["base_vx", "base_vy", "base_wz"]
    match command.arm:
        case JointCommand(q=q):
            numbers, names = [*numbers, *q], [*names, *joint_names(len(q))]
        case PoseCommand(p_BE=p, quat_BE=quat):
            columns = rotation_to_6d(pose_from_quaternion(p, quat).rotation)
            numbers, names = [*numbers, *p, *columns], [*names, *HAND_NAMES]
    if command.gripper is not None:
        numbers, names = [*numbers, command.gripper.width], [*names, "gripper_width"]
    return np.array(numbers, dtype=np.float32), names


def _checked(what: str, numbers: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if numbers.shape != shape:
        raise InvalidValueError(f"{what} is recorded with shape {shape}, got {numbers.shape}")
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)  # too large for it is infinite, which is refused
