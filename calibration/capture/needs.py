"""Reports what labels need and a capture lacks, while it can still be supplied."""

from collections.abc import Sequence

from calibration.capture.raw import RawCapture
from calibration.verdict import Reason


def of_roles(capture: RawCapture) -> list[Reason]:
    """Check that there are a chest and a hand."""
    roles = set(capture.devices)
    if "chest" in roles and len(roles) > 1:
        return []
    return [
        Reason(
            name="device-missing",
            what=f"labels need a chest and a hand, got {', '.join(sorted(roles))}.",
            do="Import or record both at once, as --chest and --hand: devices added to this capture later "
            "become a separate part.",
        )
    ]


def of_marks(capture: RawCapture) -> list[Reason]:
    """Check for demonstrations and the clips that join devices. InvalidValueError: marks are unreadable."""
    out = []
    spans = capture.spans
    if spans.unpaired:
        listed = ", ".join(f"{m.what} at {m.t_ns} ns" for m in spans.unpaired[:5])
        out.append(
            Reason(
                name="marks-unpaired",
                what=f"{len(spans.unpaired)} marks have no partner and are left out: {listed}.",
                do="End each demonstration that was begun; what lies between such marks is in no "
                "demonstration.",
                is_fatal=False,
            )
        )
    if not spans.demonstrations:
        out.append(
            Reason(
                name="no-demonstrations",
                what="no demonstration is marked.",
                do="Mark them while recording (keys n and y), or give their times to the import (--marks).",
            )
        )
    if not spans.clips["anchor"]:
        out.append(
            Reason(
                name="no-anchor",
                what="no anchor clip is marked, so the pose of the hand's world in the chest's is unknown.",
                do="Show the board to both cameras at the start and at the end (clip anchor: key a, or a "
                "line of --marks).",
                is_fatal=False,
            )
        )
    if not spans.clips["lean"]:
        out.append(
            Reason(
                name="no-lean",
                what="no lean clip is marked, so the point that the wearer leans about is unknown.",
                do="Lean forward and sideways with feet still, once (clip lean: key l, or a line of "
                "--marks).",
                is_fatal=False,
            )
        )
    return out


def of_measures(capture: RawCapture, roles: Sequence[str]) -> list[Reason]:
    """Check for measured quantities: floor height, TCP pose, gripper width.

    roles: of the devices that can be read.
    """
    out = []
    if not {"board_height_m", "chest_height_m"} & set(capture.setup.more):
        out.append(
            Reason(
                name="no-floor",
                what="the height of the floor is undeclared, and labels measure heights from it.",
                do="Give the height of the lying board or of the chest's camera to `capture label` "
                "(--board-height-m, --chest-height-m), or next time to the import or in the rig's file.",
                is_fatal=False,
            )
        )
    for role in roles:
        if role == "chest":
            continue
        device = capture.devices[role]
        if device.info.X_HE is None:
            out.append(
                Reason(
                    name="no-tcp",
                    what=f"{role}: the pose of the TCP in its camera, which labels need, is undeclared.",
                    do="`calibrate tcp` finds it; give its file to `capture label --tcp`, or to the import "
                    "(tcp=FILE) or the rig's file before.",
                    is_fatal=False,
                )
            )
        if device.gripper is None and device.info.gripper is None:
            out.append(
                Reason(
                    name="no-width",
                    what=f"{role}: the width of its gripper is not measured, so labels have no gripper.",
                    do="Give its widths (gripper=FILE), or film tags on its fingers (gripper=tags).",
                    is_fatal=False,
                )
            )
    return out
