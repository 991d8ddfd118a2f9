"""`robot-runtime capture`: demonstrations without a robot, from devices' files or streams to labels."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import OmitSubcommandPrefixes, configure, subcommand

from robot_runtime.cli.capture.check import CaptureCheck
from robot_runtime.cli.capture.import_ import CaptureImport
from robot_runtime.cli.capture.label import CaptureLabel
from robot_runtime.cli.capture.record import CaptureRecord
from robot_runtime.cli.capture.replay import CaptureReplay
from robot_runtime.cli.capture.sample import CaptureSample


@configure(OmitSubcommandPrefixes)
@dataclass(frozen=True, kw_only=True)
class Capture:
    """Demonstrate without a robot: a camera on the chest, another on a hand-held gripper, both with poses.

    For whoever collects data with them; docs/capture.md leads from printing the board to a trained policy.
    """

    what: (
        Annotated[CaptureRecord, subcommand("record")]
        | Annotated[CaptureImport, subcommand("import")]
        | Annotated[CaptureCheck, subcommand("check")]
        | Annotated[CaptureLabel, subcommand("label")]
        | Annotated[CaptureReplay, subcommand("replay")]
        | Annotated[CaptureSample, subcommand("sample")]
    )

    def main(self) -> int:
        return self.what.main()
