"""Writes labels as episodes of a LeRobot v3 dataset: `export_lerobot`.

    CAPTURE     demonstration 0     1        2 (not usable)      one episode per usable demonstration
    DATASET     episode 0           1                            complete or absent; a rerun adds missing ones

Each row has the newest image of each camera by then, with its capture time. Calibration and settings of the
labels are in meta/capture/, by hash.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.capture.raw import Device
from calibration.labels.columns import CAMERA_OF, Kind, Scene, columns, features, with_other_hand
from calibration.labels.feasibility import Feasibility
from calibration.labels.joined import Joined
from calibration.labels.values import Labels
from calibration.store import pose_to_json
from robot_runtime.dataset import run_columns as run
from robot_runtime.dataset.dataset_folder import DatasetFolder
from robot_runtime.dataset.recording import LEROBOT_COLUMNS
from robot_runtime.dataset.stored import slower_of
from robot_runtime.dataset.video import VideoWriter
from robot_runtime.dataset.whole_episode import camera_column, whole_episode
from robot_runtime.errors import InvalidValueError


def provenance(joined: Joined) -> dict[str, Any]:
    """Provenance of labels. Units: m, rad, s; quaternions wxyz. X_AB is the pose of B in A."""
    capture, pivot = joined.capture, joined.pivot
    return {
        "capture_when": capture.when,
        "person": capture.setup.person,
        "board": None if capture.board is None else dict(capture.board),
        "devices": {
            role: {
                "kind": device.info.kind,
                "camera": None if device.info.camera is None else dict(device.info.camera),
                "pose_camera_tcp": None if device.info.X_HE is None else pose_to_json(device.info.X_HE),
                "gripper": device.info.gripper,
            }
            for role, device in capture.devices.items()
        },
        "anchors": [
            {
                "chest_ns": tie.chest_ns,
                "pose_chest_world_hand_world": pose_to_json(tie.X_WcWh),
                "pose_chest_world_board": pose_to_json(tie.X_WcB),
                "covariance": np.asarray(tie.covariance).tolist(),
            }
            for tie in joined.ties
        ],
        "clock": {
            "hand_offset_ns": joined.clock.offset_ns,
            "skew_ppm": joined.clock.skew_ppm,
            "reference_ns": joined.clock.reference_ns,
            "sigma_s": joined.clock.sigma_s,
        },
        "pivot": {"p_camera": pivot.d_C.tolist(), "is_measured": pivot.is_measured, "rms_m": pivot.rms_m},
        "floor_z": joined.floor_z,
        "config": _plain(asdict(joined.config)),
        "hashes": dict(joined.hashes),
    }


def digest_of(about: Mapping[str, Any]) -> str:
    """SHA-256 of a provenance."""
    return hashlib.sha256(json.dumps(about, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value


META = "meta/capture"
_SAMPLE_SIDE = 150


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """One demonstration to export as an episode."""

    labels: Labels
    joined: Joined
    done: Feasibility | None = None
    success: bool | None = None
    """Whether it succeeded, if declared."""
    other: "Labelled | None" = None
    """The left hand in the same rows, where a dataset has both; then `labels` are the right hand's."""

    @property
    def both(self) -> "tuple[Labelled, ...]":
        """Itself, and the other hand."""
        return (self,) if self.other is None else (self, self.other)

    @property
    def pictures(self) -> dict[str, np.ndarray]:
        """Role of a camera -> image of each row."""
        return {role: index for each in self.both for role, index in each.labels.picture_index.items()}


@dataclass(frozen=True, kw_only=True)
class Written:
    """The outcome of exporting one demonstration."""

    capture: Path
    demonstration: int
    num_frames: int
    """Number of rows; 0: it was left out."""
    why: str = ""


def export_lerobot(
    labelled: Sequence[Labelled],
    folder: Path,
    *,
    kind: Kind = "decoupled",
    scene: Scene | None = None,
    robot_type: str = "person",
    size: tuple[int, int] | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[Written]:
    """Add demonstrations to a dataset, created if absent; returns the outcome of each.

    kind: the labels that become the action; the others get columns of their own. size: (height, width) of the
    images; None: as recorded. Demonstrations that are unusable or already in the dataset are left out.
    InvalidValueError: they do not fit together or into the folder. OSError: it cannot be written.
    """
    if not labelled:
        raise InvalidValueError("there is no demonstration to export")
    wanted = _features(labelled, kind, scene, size)
    fps = labelled[0].joined.config.fps
    out: list[Written] = []
    with DatasetFolder(folder, resume=folder.exists()) as target:
        _refuse_other(target, wanted, fps, robot_type)
        there = {each for each in target.column("trial_key") if each is not None}
        for number, each in enumerate(labelled):
            why = _why_not(each, there)
            if not why:
                _add(target, each, wanted, fps, kind, scene, robot_type)
            labels = each.labels
            out.append(
                Written(
                    capture=each.joined.capture.path,
                    demonstration=labels.demonstration,
                    num_frames=0 if why else len(labels),
                    why=why,
                )
            )
            progress(number + 1, len(labelled))
    return out


def key_of(each: Labelled) -> str:
    """Key that identifies a demonstration, wherever the capture is stored."""
    capture = each.joined.capture
    begin = next(d for d in capture.demonstrations() if d.number == each.labels.demonstration).begin_ns
    hands = "+".join(one.joined.hand_role for one in each.both)
    return f"{capture.when}-{capture.setup.person}-{hands}-{begin}"


def _why_not(each: Labelled, there: set[str]) -> str:
    if key_of(each) in there:
        return "in the dataset already"
    verdicts = [
        *(one.labels.verdict for one in each.both),
        *([] if each.done is None else [each.done.verdict]),
    ]
    return "; ".join(f"{r.name}: {r}" for verdict in verdicts for r in verdict.reasons if r.is_fatal)


def _features(
    labelled: Sequence[Labelled], kind: Kind, scene: Scene | None, size: tuple[int, int] | None
) -> dict[str, dict[str, Any]]:
    """Features that all share; InvalidValueError: one has other cameras, another pace or another arm."""
    found = []
    for each in labelled:
        cameras = {}
        for role in each.pictures:
            device = each.joined.device(role)
            if device.video is not None and device.info.size is not None:
                cameras[CAMERA_OF[role]] = size or device.info.size
        num_joints = 0 if each.done is None else each.done.q.shape[1]
        if (each.other is None) != (labelled[0].other is None):
            raise InvalidValueError("one demonstration has two hands and another one: label them apart")
        found.append((cameras, num_joints, each.joined.config.fps, each.labels.slower))
    first = found[0]
    for each, other in zip(labelled, found, strict=True):
        if other != first:
            raise InvalidValueError(
                f"{each.joined.capture.path} has cameras {other[0]}, {other[1]} joints, {other[2]} rows a "
                f"second and is {other[3]:g} times slower; the first {first[0]}, {first[1]}, {first[2]} and "
                f"{first[3]:g}: --size gives images one size"
            )
    return features(
        cameras=first[0],
        num_joints=first[1],
        scene=scene,
        kind=kind,
        slower=first[3],
        has_two_hands=labelled[0].other is not None,
    )


def _refuse_other(
    target: DatasetFolder, wanted: Mapping[str, Mapping[str, Any]], fps: int, robot_type: str
) -> None:
    """Check that the existing dataset has the same columns, rate and labels; InvalidValueError otherwise."""
    if target.info is None:
        return
    if (target.info["fps"], target.info.get("robot_type")) != (fps, robot_type):
        raise InvalidValueError(
            f"{target.root} is of {target.info.get('robot_type')!r} at {target.info['fps']} frames a second, "
            f"these labels of {robot_type!r} at {fps}"
        )
    there = target.info["features"]
    for name in sorted((there.keys() ^ wanted.keys()) - LEROBOT_COLUMNS):
        side = "the labels have" if name in wanted else "the dataset has"
        raise InvalidValueError(f"only {side} a column {name!r}: they cannot go into {target.root}")
    for name, feature in wanted.items():
        for what in ("names", "shape", "dtype"):
            one, two = (
                list(v) if isinstance(v := each[what], tuple) else v for each in (feature, there[name])
            )
            if one != two:
                raise InvalidValueError(f"column {name!r} has {what} {two} in {target.root}, {one} here")
    infos = [dict(each["action"].get("info") or {}) for each in (there, wanted)]
    kinds = [info.get("labels") for info in infos]
    if kinds[0] != kinds[1]:
        raise InvalidValueError(f"the action of {target.root} is {kinds[0]} labels, here {kinds[1]}")
    refuse_other_pace(target.root, there, slower_of(wanted))


def refuse_other_pace(root: Path, features: Mapping[str, Any], slower: float) -> None:
    """Check that the dataset's robot takes `slower` times as long; InvalidValueError otherwise."""
    if (there := slower_of(features)) != slower:
        raise InvalidValueError(
            f"in {root} the robot takes {there:g} times as long as the person, here {slower:g}: labels of "
            "another pace go into a dataset of their own"
        )


def _add(
    target: DatasetFolder,
    each: Labelled,
    wanted: Mapping[str, Mapping[str, Any]],
    fps: int,
    kind: Kind,
    scene: Scene | None,
    robot_type: str,
) -> None:
    from lerobot.datasets.compute_stats import sample_indices

    labels = each.labels
    place = target.staging()
    place.mkdir()
    videos, samples = {}, {}
    sampled = sample_indices(len(labels))
    for number, (role, index) in enumerate(each.pictures.items()):
        column = camera_column(CAMERA_OF[role])
        if column in wanted:
            height, width, _ = wanted[column]["shape"]
            path = place / f"{number}.mp4"
            samples[column] = film(each.joined.device(role), index, path, fps, (height, width), sampled)
            videos[column] = path
    numbers = columns(labels, each.done, kind=kind, scene=scene)
    about = provenance(each.joined)
    if each.other is not None:
        numbers = with_other_hand(numbers, labels, each.other.labels, kind=kind)
        about |= {"other_hand": provenance(each.other.joined)}
    digest = keep_provenance(target.root, about)
    episode = whole_episode(
        features=wanted,
        fps=fps,
        robot_type=robot_type,
        columns={name: numbers[name] for name in wanted if name not in videos},
        tasks=[labels.task] * len(labels),
        videos=videos,
        samples=samples,
        about=_about(each, kind, digest),
    )
    target.take(episode, {})


def _about(each: Labelled, kind: Kind, digest: str) -> dict[str, Any]:
    """Row of a demonstration in meta/episodes."""
    labels, capture, done = each.labels, each.joined.capture, each.done
    outcome = "unknown" if each.success is None else "success" if each.success else "failure"
    figures = {f"label.{name}": float(value) for name, value in labels.figures.items() if np.isfinite(value)}
    for name in ("pivot_condition", "tag_px"):
        figures.setdefault(f"label.{name}", -1.0)
    robot = {
        "label.reached_share": 1.0 if done is None else done.reached_share,
        "label.joint_share": 0.0 if done is None else done.joint_share,
        "label.speed_share": 0.0 if done is None else done.speed_share,
        "label.lateral_share": 0.0 if done is None else done.lateral_share,
        "label.base_offset_x_m": 0.0 if done is None else float(done.x_GB[0]),
        "label.base_offset_y_m": 0.0 if done is None else float(done.x_GB[1]),
    }
    return {
        run.SUCCESS: run.success_of(outcome),
        run.OUTCOME: outcome,
        "outcome_source": "" if each.success is None else "person",
        "labels": kind,
        "label.warnings": ", ".join(reason.name for reason in labels.verdict.reasons),
        **figures,
        **robot,
        "calibration_sha": digest,
        "operator": capture.setup.person,
        "capture": capture.path.resolve().name,
        "capture_when": capture.when,
        "trial": labels.demonstration,
        "trial_key": key_of(each),
        "trial_start_ns": int(labels.t_ns[0]),
        "trial_end_ns": int(labels.t_ns[-1]),
    }


def keep_provenance(root: Path, about: Mapping[str, Any]) -> str:
    """Write the provenance of labels as meta/capture/HASH.json; returns the hash."""
    from robot_runtime.results import keep_text

    digest = digest_of(about)
    path = root / META / f"{digest[:16]}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        keep_text(path, json.dumps({**about, "sha256": digest}, indent=1) + "\n")
    return digest


def film(
    device: Device, index: np.ndarray, path: Path, fps: int, size: tuple[int, int], sampled: Sequence[int]
) -> np.ndarray:
    """Write a video with the image of each row; returns those of the rows `sampled`, small, (n, 3, h, w).

    index: (N,) image of the device's video, not falling. InvalidValueError: the video ends too early.
    """
    import av

    wanted, out = set(sampled), []
    first, last = int(index[0]), int(index[-1])
    shown = pictures_between(device, max(first, 0), last + 1)
    now: tuple[int, np.ndarray] = (-1, np.zeros(0))
    with VideoWriter(path, fps, size) as writer:
        for k, number in enumerate(np.maximum(index, 0).tolist()):
            while now[0] < number:
                following = next(shown, None)
                if following is None:
                    raise InvalidValueError(
                        f"{device.folder} has no image {number}, which frames.csv has: the video was cut"
                    )
                now = following
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(now[1]), format="rgb24")
            if (frame.height, frame.width) != size:
                frame = frame.reformat(width=size[1], height=size[0])
            if k in wanted:
                out.append(_small(frame.to_ndarray(format="rgb24")))
            writer.add(frame)
    return np.array(out)


def pictures_between(device: Device, start: int, stop: int) -> Iterator[tuple[int, np.ndarray]]:
    """(index, RGB) of a device's images [start, stop)."""
    return ((index, rgb) for index, _, rgb in itertools.islice(device.pictures(start, stop), stop - start))


def _small(rgb: np.ndarray) -> np.ndarray:
    """Subsample an image to (3, h, w), as LeRobot's statistics do."""
    pixels = rgb.transpose(2, 0, 1)
    longest = max(rgb.shape[:2])
    return (
        pixels
        if longest < 2 * _SAMPLE_SIDE
        else pixels[:, :: longest // _SAMPLE_SIDE, :: longest // _SAMPLE_SIDE]
    )
