"""Records demonstrations as a LeRobot v3 dataset: `DatasetRecorder` takes observations and commands.

    frame k      observation at start + k / fps       action: the command then, see `Recording.timing`

LeRobot stamps frame k with k / fps, whatever the clock showed; the real capture times are stored beside it,
as integers in nanoseconds (`capture.time_ns.*`).
"""

import contextlib
import errno
import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from robot_runtime.core.values.action import Command
from robot_runtime.core.values.state import Observation
from robot_runtime.dataset.dataset_folder import DatasetFolder
from robot_runtime.dataset.pace import Pace
from robot_runtime.dataset.recording import (
    ACTION,
    CAPTURE,
    PICTURES,
    SCENE,
    Recording,
    names_in,
    refuse_other_names,
    row_of,
)
from robot_runtime.dataset.staged_episode import RecordingFailedError, StagedEpisode
from robot_runtime.errors import InvalidValueError, RobotRuntimeError


class RecorderUnavailableError(RobotRuntimeError):
    """LeRobot, or a package that it writes datasets with, is not installed."""


class DatasetRecorder:
    """Writes episodes into a folder of its own; an episode that is dropped leaves nothing.

    with DatasetRecorder(folder, recording) as recorder:
        recorder.add(observation, command)      once every 1 / fps
        recorder.end_episode(keep=True)

    Stock LeRobot reads the finished episodes at any moment, also after a kill, see `DatasetFolder`.
    """

    def __init__(self, folder: Path, recording: Recording, *, resume: bool = False) -> None:
        """
        resume: continue an existing dataset with the same columns; a missing folder is created.
        InvalidValueError: the folder exists, or its contents do not fit. RecorderUnavailableError: LeRobot
            cannot write here.
        """
        self._recording = recording
        self._writer = _dataset_class()
        self._folder = DatasetFolder(folder, resume=resume)
        self._dataset: Any = None
        self._features: dict[str, Any] | None = None
        self._pace = Pace(recording.fps, recording.schema.cameras)
        try:
            if self._folder.info is not None:
                recording.refuse_other(self._folder.info, folder)
                there = self._folder.info["features"]
                self._features = recording.features(names_in(there, ACTION), like=there)
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
        """Episodes in the dataset: those that were kept, and earlier ones."""
        return self._folder.num_episodes

    @property
    def leftovers(self) -> list[str]:
        """Files of an unfinished episode that a killed run had left and that were removed."""
        return self._folder.leftovers

    def notes(self, name: str) -> list[Any]:
        """The notes under `name` that `end_episode` was given for each episode."""
        return self._folder.notes(name)

    def add(
        self,
        observation: Observation,
        command: Command,
        extra: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Add one frame.

        InvalidValueError: names what is missing, not finite, of another size or out of step with `fps`; the
            frame is not added, the episode can continue or end.
        RecordingFailedError: it cannot be written.
        """
        numbers = self._recording.commanded_numbers(command)
        features = self._features
        if features is None:
            features = self._recording.features([*numbers])
        refuse_other_names(ACTION, names_in(features, ACTION), [*numbers])
        frame = self._frame(observation, extra or {}, features)
        frame[ACTION] = row_of(numbers, names_in(features, ACTION))
        for name, values in frame.items():
            if isinstance(values, np.ndarray) and not np.isfinite(values).all():
                raise InvalidValueError(f"{name} of a frame to record has NaN or infinite numbers")
        self._pace.check(observation)
        with self._in_words():
            if self._dataset is None:
                self._dataset = self._create(features)
            self._dataset.add_frame(frame)
        self._features = features
        self._pace.took(observation)

    def end_episode(self, *, keep: bool, notes: Mapping[str, int | str] | None = None) -> None:
        """Write the frames since the last end, or drop them.

        notes: kept with the episode, see `notes`.
        RecordingFailedError: it cannot be written; the earlier ones are unchanged.
        """
        self._pace = Pace(self._recording.fps, self._recording.schema.cameras)
        dataset, self._dataset = self._dataset, None
        if dataset is None:
            return
        with self._in_words():
            if keep:
                dataset.save_episode(
                    parallel_encoding=False
                )  # a kill must not leave a process that still writes
                dataset.finalize()
                self._folder.take(StagedEpisode.read(dataset.root), notes or {})
            shutil.rmtree(dataset.root.parent)

    def close(self) -> None:
        """Close the folder; frames of an episode that was not ended are dropped."""
        self._dataset = None
        self._folder.close()

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        """Turn any error in writing into one sentence."""
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

    def _create(self, features: dict[str, Any]) -> Any:
        """Create a dataset for one episode, which the folder takes when it is complete."""
        recording = self._recording
        return self._writer.create(
            repo_id=self._folder.root.name,
            root=self._folder.staging(),
            fps=recording.fps,
            features=features,
            robot_type=recording.robot_type,
            use_videos=True,
            rgb_encoder=_h264(),
            video_backend="pyav",
        )

    def _frame(
        self, observation: Observation, extra: Mapping[str, np.ndarray], features: Mapping[str, Any]
    ) -> dict[str, Any]:
        schema = self._recording.schema
        numbers = self._recording.measured_numbers(observation)
        frame: dict[str, Any] = {
            "task": observation.task,
            f"{CAPTURE}.state": np.array([observation.state.t_ns]),
        }
        for column in self._recording.named:
            if column == SCENE:
                scene, size = observation.environment_state, (schema.environment_state_dim,)
                frame[column] = _checked("the environment state", scene, size)
            else:
                frame[column] = row_of(numbers, names_in(features, column))
        for camera, (height, width) in schema.cameras.items():
            if camera not in observation.images:
                have = ", ".join(observation.images) or "none"
                raise InvalidValueError(f"no image of camera {camera!r} to record, there are {have}")
            image = observation.images[camera]
            if image.pixels.shape != (height, width, 3):
                raise InvalidValueError(
                    f"camera {camera!r} is recorded at {(height, width, 3)}, got {image.pixels.shape}"
                )
            frame[f"{PICTURES}.{camera}"] = image.pixels
            frame[f"{CAPTURE}.{camera}"] = np.array([image.t_ns])
        for name, shape in self._recording.extra.items():
            if name not in extra:
                raise InvalidValueError(f"the recording declares {name!r}, the frame has none")
            frame[name] = _checked(name, extra[name], shape)
        return frame


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
    """Silence the encoder, the errors for every image, and LeRobot's progress bar for every episode: the
    caller shows progress, and `DatasetRecorder` reports failures."""
    import av.logging
    import datasets

    av.logging.set_libav_level(av.logging.ERROR)
    datasets.disable_progress_bars()
    for name in ("image_writer", "dataset_writer", "video_utils"):
        logging.getLogger(f"lerobot.datasets.{name}").setLevel(logging.CRITICAL)


def _h264() -> Any:
    """H.264 settings: every viewer plays it, and small images are encoded fast; LeRobot's default is AV1."""
    from lerobot.configs.video import RGBEncoderConfig

    return RGBEncoderConfig(vcodec="h264", crf=18)


def _checked(what: str, numbers: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if numbers.shape != shape:
        raise InvalidValueError(f"{what} is recorded with shape {shape}, got {numbers.shape}")
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)  # too large numbers become infinite, which is refused
