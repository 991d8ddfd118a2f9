"""`look_live`: computes an anchor from what two devices see now.

rig.toml ─► Streams ─► AnchorWatch ─► LiveGuide, what to do next ─► all views ─► the anchor
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from calibration.commands.calibrate.live_guide import LiveGuide
from calibration.commands.calibrate.shown import guide_of_anchor
from calibration.commands.capture.anchor_watch import AnchorWatch, AnchorWords, board_of
from calibration.commands.capture.rig import Rig, camera_model, load_rig, open_camera, pose_streams
from calibration.commands.capture.streams import Streams, wait_for
from robot_runtime.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from calibration.anchor import Anchor
    from calibration.anchor_guide import AnchorGuide, AnchorLook
    from calibration.board import Board

_WAIT_S = 0.02


def look_live(
    path: Path, guide: LiveGuide, *, intrinsics: Mapping[str, Path | None], board: Path | None
) -> "Anchor":
    """Look until both devices have enough views, or the user stops it; return the anchor.

    path: the rig's file. intrinsics: role -> file, the chest's first; None: the rig's own.
    InvalidValueError: a device, a camera's file or the board is missing, or a device saw nothing.
    """
    from calibration.anchor import AnchorConfig, solve_anchor

    rig, the_board = _complete(load_rig(path), path, intrinsics, board)
    with ExitStack() as stack:
        cameras = {role: open_camera(each.camera) for role, each in rig.devices.items()}
        models = {role: camera_model(each, cameras[role].size) for role, each in rig.devices.items()}
        streams = stack.enter_context(Streams(cameras, pose_streams(rig), say=guide.say, alarm=guide.say))
        seen = _looked(streams, guide, the_board, models)
    if lacking := [role for role in models if not seen.progress[role].views]:
        raise InvalidValueError(f"{' and '.join(lacking)} never looked at the board: there is no view of it")
    guide.compute()
    chest, hand = (seen.views(role) for role in models)
    return solve_anchor(the_board, chest, hand, AnchorConfig(hand_time=lambda t_ns: t_ns))


def _looked(streams: Streams, guide: LiveGuide, board: "Board", models: Mapping[str, Any]) -> "AnchorGuide":
    words = AnchorWords(guide.say)

    def on_look(seen: "AnchorGuide", look: "AnchorLook") -> None:
        words.hear(seen, look)
        if look.is_taken or look.role == seen.next_role:
            guide.show(guide_of_anchor(guide.guide, seen, look), look.picture)

    with closing(AnchorWatch(board, models, on_look)) as watch:
        if wait_for(streams, lambda line: _waits(guide, line), is_over=lambda: guide.is_stopped):
            guide.say(watch.guide.advice)
        while not guide.is_stopped and not watch.is_over:
            for each in streams.take(_WAIT_S):
                watch.tell(each)
    if watch.error is not None:
        raise watch.error
    return watch.guide


def _waits(guide: LiveGuide, line: str) -> None:
    guide.say(line)
    guide.show(replace(guide.guide, do=line))


def _complete(
    rig: Rig, path: Path, intrinsics: Mapping[str, Path | None], board: Path | None
) -> "tuple[Rig, Board]":
    """Return the rig with only these devices, in this order, and the board. InvalidValueError names what is
    missing."""
    from dataclasses import replace

    from calibration.board import Board
    from calibration.store import load

    for role in intrinsics:
        if role not in rig.devices:
            raise UnknownNameError(f"device of {path}", role, rig.devices)
    devices = {
        role: rig.devices[role] if file is None else replace(rig.devices[role], intrinsics=file)
        for role, file in intrinsics.items()
    }
    lacking = [
        f"[{role}] names no intrinsics (`robot-runtime calibrate intrinsics` measures them)"
        for role, device in devices.items()
        if device.intrinsics is None
    ]
    found = board_of(rig) if board is None else load(board, Board)
    if found is None:
        lacking.append("no board is named: give --board board.json")
    if lacking or found is None:
        raise InvalidValueError(f"{path}: {'; '.join(lacking)}")
    return replace(rig, devices=devices), found
