"""`robot-runtime capture label`: makes a training dataset from captures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from rich.table import Table

from calibration.commands.capture.check import Captures, reasons_of
from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import (
    ChestHeight,
    FramesPerSecond,
    Height,
    HouseholdTask,
    InputFile,
    Maybe,
    OutputFile,
    OutputFolder,
    Pixels,
    Several,
    Within,
    ZarrFolder,
    need,
)
from robot_runtime.cli.progress import advance, counted
from robot_runtime.error_text import writing
from robot_runtime.errors import InvalidValueError
from robot_runtime.providers import provider
from robot_runtime.results import keep, keep_text, result_json

if TYPE_CHECKING:
    from calibration.commands.capture.reach import Target
    from calibration.labels.export_lerobot import Labelled, Written
    from calibration.labels.export_umi import UmiWritten
    from calibration.labels.feasibility import Feasibility
    from calibration.labels.label import CaptureLabels
    from calibration.labels.values import Drift, LabelConfig

DriftOption = tuple[Annotated[float, Within(0.1, 1000.0)], Annotated[float, Within(0.001, 45.0)]]
"""Drift on the first metre, [mm] and [degrees]."""


@dataclass(frozen=True, kw_only=True)
class CaptureLabel:
    """Make a training dataset from captures.

    Labels the motion of the hand in a virtual base, of that base on the floor, and the positions of objects.
    Unusable demonstrations are left out, with the reason; those already in the dataset are not labelled
    again. Exit code 1: no demonstration is usable.

    Example: robot-runtime capture label captures/kitchen --output datasets/fetch --task fetch
    """

    captures: Captures
    """Folders of the captures."""
    output: Maybe[OutputFolder] = None
    """LeRobot v3 dataset to create or extend."""
    umi: Maybe[ZarrFolder] = None
    """UMI replay buffer to write (Zarr v2), a folder that ends in .zarr."""
    labels: Literal["decoupled", "chest", "world"] = "decoupled"
    """Frame of the hand's pose in the action. decoupled: a base that neither leans nor sways. chest: the
    measured chest. world: the room. The dataset also contains the other two."""
    task: Maybe[HouseholdTask] = None
    """Household task, which adds the joints and reach of its robot, and the scene state of its policies, so
    that `train --task ... --dataset ...` can use the dataset."""
    robot: Maybe[InputFile] = None
    """robot.toml in place of --task, whose arm has kinematics and limits."""
    no_sideways: bool = False
    """The base of --robot cannot drive sideways; the share of sideways motion is checked too."""
    anchors: Several[InputFile] = ()
    """Anchors of one capture, by `calibrate anchor`; solved from the marked clips if not given."""
    hand: Maybe[Literal["hand", "right_hand", "left_hand", "both"]] = None
    """Hand to label; the only one if not given. both: one dataset with right and left hand, without a
    robot."""
    tcp: Maybe[InputFile] = None
    """TCP in the hand's camera, by `calibrate tcp`; that of the capture if not given."""
    fps: FramesPerSecond = 20
    """Rows per second; `train` requires 20."""
    slower: Annotated[float, Within(0.2, 10.0)] = 1.0
    """Duration of the robot's motion relative to the person's, for arms that are slower than people."""
    slower_up_to: Maybe[Annotated[float, Within(1.0, 10.0)]] = None
    """Choose the duration, up to this: the shortest at which joints and base of the robot keep their limits.
    Demonstrations that would take longer are refused."""
    picture: Maybe[OutputFile] = None
    """Draw which demonstrations the robot can follow (.png, .pdf or .svg): base and hand from above."""
    board_height_m: Maybe[Height] = None
    """Height of the flat board above the floor [m]; that of the capture if not given."""
    chest_height_m: Maybe[ChestHeight] = None
    """Height of the chest camera above the floor while its wearer is upright [m]."""
    cut_off_hz: Annotated[float, Within(0.05, 5.0)] = 0.6
    """Cut-off frequency of the virtual base's motion [Hz]."""
    size: Maybe[tuple[Pixels, Pixels]] = None
    """Height and width of the dataset's images [pixels]; those of the videos if not given."""
    shared_clock: bool = False
    """One clock stamped both devices, so that no sync clip is needed."""
    chest_drift: DriftOption = (5.0, 0.12)
    """Drift of the chest's odometry on the first metre, as standard deviations of position along each axis
    [mm] and of yaw [degrees]. It grows with the square root of the distance."""
    hand_drift: DriftOption = (5.0, 0.12)
    """Drift of the hand's odometry, likewise."""
    no_tags: bool = False
    """Do not correct drift with the gripper's tags where the chest camera saw them."""
    json: Maybe[OutputFile] = None
    """Write the findings on each demonstration to this file, as JSON."""

    def main(self) -> int:
        self._need()
        if self.task is not None and self.robot is not None:
            raise InvalidValueError("--task and --robot both select the robot: give one of them")
        if self.no_sideways and self.robot is None:
            raise InvalidValueError("--no-sideways is for your own robot, with --robot")
        if self.anchors and len(self.captures) > 1:
            raise InvalidValueError("--anchors are of one capture: each has odometry worlds of its own")
        self._refuse_pace_without_robot()
        if self.hand == "both" and (self.task or self.robot or self.umi or self.anchors or self.tcp):
            raise InvalidValueError(
                "--hand both takes no --task, --robot, --umi, --anchors or --tcp, which are of one hand: "
                "label each hand with its own"
            )
        self._refuse_other_pace(self.slower if self.slower_up_to is None else None)
        target = self._target()
        self._refuse_other_task()
        labelled, broken, slower = self._labelled(target)
        self._draw(labelled)
        self._refuse_other_pace(slower)
        try:
            written, umi = self._written(labelled, target), self._umi(labelled)
        except InvalidValueError:
            show(labelled, [], broken)  # prints why none of them is usable
            raise
        show(labelled, written, broken)
        if self.slower_up_to is not None:
            bound = f"the shortest that its limits allow, at most {self.slower_up_to:g}"
            print(f"the robot takes {slower:g} times as long as the person: {bound}")
        if umi is not None:
            print(f"{self.umi}: {umi}")
        if self.output is not None and any(each.num_frames for each in written):
            print(f"next: robot-runtime capture replay {self.output} --video labels.mp4")
        if self.output is None and self.umi is None:
            print("no dataset was written: --output FOLDER makes one, --umi FILE.zarr one for UMI")
        if self.json is not None:
            keep_text(self.json, result_json({"demonstrations": [as_json(each) for each in labelled]}))
        return 0 if any(_is_usable(each) for each in labelled) else 1

    def _refuse_pace_without_robot(self) -> None:
        if (self.slower_up_to is not None or self.picture is not None) and not (self.task or self.robot):
            raise InvalidValueError(
                "--slower-up-to and --picture need the robot's limits: give --task or --robot"
            )
        if self.slower_up_to is not None and self.slower != 1.0:
            raise InvalidValueError("--slower and --slower-up-to both set the pace: give one of them")

    def _refuse_other_pace(self, slower: float | None) -> None:
        """Raise InvalidValueError if the dataset has another pace; None: it is not chosen yet."""
        from calibration.labels.export_lerobot import refuse_other_pace
        from robot_runtime.dataset.stored import StoredDataset

        if slower is not None and self.output is not None and (self.output / "meta" / "info.json").is_file():
            refuse_other_pace(self.output, StoredDataset(self.output).features, slower)

    def _refuse_other_task(self) -> None:
        """Raise InvalidValueError if a capture demonstrates another task than --task, which `train`
        refuses."""
        from calibration.capture.raw import RawCapture, parts_of

        if self.task is None:
            return
        wanted = provider("simulation").make_task(self.task).instruction
        for path in (part for folder in self.captures for part in parts_of(folder)):
            if (shown := RawCapture.open(path).setup.task) != wanted:
                raise InvalidValueError(
                    f"{path} demonstrates {shown!r}, --task {self.task} is {wanted!r}: record or import "
                    f"it with --task {wanted!r} if that is what it shows; for another task give --robot "
                    "robot.toml in place of --task"
                )

    def _need(self) -> None:
        """Raise ExtraMissingError with all missing extras that these options need."""
        modules, extras = ["scipy", "cv2", "av"], ["calibration"]
        if self.task is not None:
            modules, extras = [*modules, "mujoco"], [*extras, "sim"]
        if self.output is not None:
            modules, extras = [*modules, "lerobot"], [*extras, "lerobot"]
        need(*modules, extras=extras)

    def _target(self) -> "Target | None":
        from calibration.commands.capture.reach import of_file

        if self.task is not None:
            target: Target = provider("simulation").capture_robot(self.task)
            return target
        return None if self.robot is None else of_file(self.robot, is_holonomic=not self.no_sideways)

    def _config(self, target: "Target | None") -> "LabelConfig":
        from calibration.labels.smoothing import Pace, Smoothing
        from calibration.labels.values import LabelConfig

        pace = Pace() if target is None or target.pace is None else target.pace
        return LabelConfig(
            fps=self.fps,
            slower=self.slower,
            board_height_m=self.board_height_m,
            chest_height_m=self.chest_height_m,
            smoothing=Smoothing(cut_off_hz=self.cut_off_hz, pace=pace),
            chest_drift=_drift(self.chest_drift),
            hand_drift=_drift(self.hand_drift),
            use_tags=not self.no_tags,
            has_shared_clock=self.shared_clock,
        )

    def _labelled(self, target: "Target | None") -> "tuple[list[Labelled], list[str], float]":
        """Label all captures; return their demonstrations, the faults of captures that failed, the pace."""
        from calibration.capture.raw import RawCapture, parts_of
        from calibration.commands.capture.reach import at_least_pace, on_robot
        from calibration.labels.export_lerobot import Labelled
        from calibration.labels.two_hands import label_both

        paths = [part for folder in self.captures for part in parts_of(folder)]
        config, broken = self._config(target), list[str]()
        found: list[CaptureLabels] = []
        with_both: list[Labelled] = []
        with counted(stays=False) as progress:
            bar = progress.add_task("label", total=len(paths))
            for path in paths:
                look = progress.add_task(f"board in {path.name}", total=None)
                try:
                    capture = RawCapture.open(path)
                    if self.hand == "both":
                        both, without = label_both(capture, config, progress=advance(progress, look))
                        with_both += both
                        broken += [f"{path}, {why}" for why in without]
                    else:
                        found.append(self._of_capture(capture, config, broken, advance(progress, look)))
                except InvalidValueError as error:
                    if len(paths) == 1:
                        raise
                    broken.append(f"{path}: {error}")
                progress.remove_task(look)
                progress.advance(bar)

        if self.hand == "both":
            return with_both, broken, self.slower

        def at_pace(slower: float) -> list[Labelled]:
            labels = found if slower == self.slower else [each.at_pace(slower) for each in found]
            return [Labelled(labels=one, joined=each.joined) for each in labels for one in each.labels]

        if target is None:
            return at_pace(self.slower), broken, self.slower
        if self.slower_up_to is None:
            return on_robot(at_pace(self.slower), target), broken, self.slower
        labelled, _, slower = at_least_pace(at_pace, target, self.slower_up_to)
        return labelled, broken, slower

    def _draw(self, labelled: "Sequence[Labelled]") -> None:
        from calibration.labels.picture import draw_reach

        if self.picture is not None and labelled:
            keep(self.picture, lambda to: draw_reach(labelled, to, format=self.picture.suffix[1:]))  # type: ignore[union-attr]

    def _of_capture(
        self, capture: Any, config: "LabelConfig", broken: list[str], progress: Callable[[int, int], None]
    ) -> "CaptureLabels":
        from calibration.anchor import Anchor
        from calibration.capture.sources.spec import pose_file
        from calibration.labels.label import label_capture
        from calibration.store import load

        anchors = [load(path, Anchor) for path in self.anchors] if self.anchors else None
        X_HE = None if self.tcp is None else pose_file(self.tcp)
        found = label_capture(capture, config, anchors=anchors, hand=self.hand, X_HE=X_HE, progress=progress)
        broken += [f"{capture.path}, {why}" for why in found.without]
        return found

    def _written(self, labelled: "Sequence[Labelled]", target: "Target | None") -> "list[Written]":
        from calibration.labels.columns import points_of
        from calibration.labels.export_lerobot import export_lerobot

        if self.output is None or not labelled:
            return []
        names = sorted(set.intersection(*(set(each.labels.glimpses) for each in labelled)))
        scene = points_of(names) if target is None or target.scene is None else target.scene
        with counted(stays=False) as progress, writing(self.output):
            bar = progress.add_task(f"write {self.output.name}", total=len(labelled))
            return export_lerobot(
                labelled,
                self.output,
                kind=self.labels,
                scene=scene if names else None,
                robot_type="person" if target is None else target.name,
                size=self.size,
                progress=advance(progress, bar),
            )

    def _umi(self, labelled: "Sequence[Labelled]") -> "UmiWritten | None":
        from calibration.labels.export_umi import export_umi

        if self.umi is None or not labelled:
            return None
        with counted(stays=False) as progress, writing(self.umi):
            bar = progress.add_task(f"write {self.umi.name}", total=len(labelled))
            return export_umi(labelled, self.umi, progress=advance(progress, bar))


def _drift(option: tuple[float, float]) -> "Drift":
    """Convert (mm, degrees) of position and yaw, per root of a metre."""
    from math import radians

    from calibration.labels.values import Drift

    return Drift(walk_m=option[0] / 1e3, walk_rad=radians(option[1]))


def _is_usable(each: "Labelled") -> bool:
    is_ok = all(one.labels.verdict.ok for one in each.both)
    return is_ok and (each.done is None or each.done.verdict.ok)


_ROBOT = ["reached [%]", "joints [%]", "base [%]", "sideways [%]"]


def _shares(done: "Feasibility") -> tuple[float, ...]:
    return done.reached_share, done.joint_share, done.speed_share, done.lateral_share


def show(labelled: "Sequence[Labelled]", written: "Sequence[Written]", broken: Sequence[str]) -> None:
    """Print one line for each demonstration."""
    console = plain_console(is_wide=True)
    for line in broken:
        console.print(line, soft_wrap=True, markup=False)
    if not labelled:
        return
    has_robot = labelled[0].done is not None
    heads = ["capture", "nr", "long [s]", "path [m]", "hand +- [mm]", "base off [mm]"]
    table = Table(*heads, *(_ROBOT if has_robot else []), "verdict", "why", box=None, pad_edge=False)
    whys = {(each.capture, each.demonstration): each.why for each in written}
    for each in labelled:
        found, capture = each.labels.figures, each.joined.capture.path
        said = [reasons_of(one.labels.verdict) for one in each.both]
        reasons = list(dict.fromkeys(line for lines in said for line in lines))
        reasons += [] if each.done is None else reasons_of(each.done.verdict)
        row = [
            capture.name if len(labelled) > 1 else str(capture),
            str(each.labels.demonstration),
            f"{found['duration_s']:.1f}",
            f"{found['base_path_m']:.1f}",
            f"{1e3 * found['hand_sigma_m']:.1f}",
            f"{1e3 * found['base_off_person_m']:.0f}",
        ]
        row += [] if each.done is None else [f"{100 * share:.0f}" for share in _shares(each.done)]
        why = whys.get((capture, each.labels.demonstration), "")
        usable = _is_usable(each)
        verdict = "there already" if why == "in the dataset already" else "usable" if usable else "not usable"
        table.add_row(*row, verdict, "\n".join(reasons), style=None if usable else "red")
    console.print(table)
    if has_robot and labelled[0].done is not None:
        x, y = np.round(labelled[0].done.x_GB[:2], 1) + 0.0  # avoids -0.0
        console.print(f"robot's base in the person's: {x:+.1f} m forwards, {y:+.1f} m to the left")
    if written:
        rows = sum(each.num_frames for each in written)
        console.print(f"{sum(each.num_frames > 0 for each in written)} episodes, {rows} frames written")


def as_json(each: "Labelled") -> dict[str, Any]:
    """Return the findings on a demonstration."""
    done = each.done
    robot = (
        {}
        if done is None
        else {
            "reached_share": done.reached_share,
            "joint_share": done.joint_share,
            "speed_share": done.speed_share,
            "lateral_share": done.lateral_share,
            "base_offset": done.x_GB.tolist(),
            "robot_verdict": done.verdict.to_dict(),
        }
    )
    return {
        "capture": str(each.joined.capture.path),
        "demonstration": each.labels.demonstration,
        "figures": {name: float(value) for name, value in each.labels.figures.items()},
        "verdict": each.labels.verdict.to_dict(),
        **robot,
    }
