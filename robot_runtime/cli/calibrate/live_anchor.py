"""An anchor from what two devices see now: `look_live`.

rig.toml ─► Streams ─► AnchorWatch ─► LiveGuide, what to do next ─► all views ─► the anchor
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from robot_runtime.cli.calibrate.live_guide import LiveGuide
from robot_runtime.cli.calibrate.shown import guide_of_anchor
from robot_runtime.cli.capture.anchor_watch import AnchorWatch, AnchorWords
from robot_runtime.cli.capture.rig import Rig, camera_model, load_rig, open_camera, pose_streams
from robot_runtime.cli.capture.streams import Streams
from robot_runtime.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from calibration.anchor import Anchor
    from calibration.anchor_guide import AnchorGuide, AnchorLook
    from calibration.board import Board

_WAIT_S = 0.02


def look_live(
    path: Path, guide: LiveGuide, *, intrinsics: Mapping[str, Path | None], board: Path | None
) -> "Anchor":
    """Until both have looked enough, or it is stopped.

    path: the rig's file. intrinsics: role -> file, the chest's first, None: the rig's own.
    InvalidValueError: a device, a camera's file or the board is missing, or nothing was seen by one of them.
    """
    from calibration.anchor import AnchorConfig, solve_anchor

    rig = _with_intrinsics(load_rig(path), path, intrinsics)
    the_board = _board(rig, path, board)
    with ExitStack() as stack:
        cameras = {role: open_camera(each.camera) for role, each in rig.devices.items()}
        models = {role: camera_model(each, cameras[role].size) for role, each in rig.devices.items()}
        streams = stack.enter_context(Streams(cameras, pose_streams(rig), alarm=guide.say))
        seen = _looked(streams, guide, the_board, models)
    guide.compute()
    chest, hand = (seen.views(role) for role in models)
    return solve_anchor(the_board, chest, hand, AnchorConfig(hand_time=lambda t_ns: t_ns))


def _looked(streams: Streams, guide: LiveGuide, board: "Board", models: Mapping[str, Any]) -> "AnchorGuide":
    waiting = "waiting for the cameras and for every pose stream"
    guide.say(waiting)
    guide.show(replace(guide.guide, do=waiting))

    words = AnchorWords(guide.say)

    def on_look(seen: "AnchorGuide", look: "AnchorLook") -> None:
        words.hear(seen, look)
        if look.is_taken or look.role == seen.next_role:
            guide.show(guide_of_anchor(guide.guide, seen, look), look.picture)

    with closing(AnchorWatch(board, models, on_look)) as watch:
        is_ready = False
        while not guide.is_stopped and not watch.is_over:
            for each in streams.take(_WAIT_S):
                watch.tell(each)
            if streams.is_ready and not is_ready:
                is_ready = True
                guide.say(watch.guide.advice)
    return watch.guide


def _with_intrinsics(rig: Rig, path: Path, intrinsics: Mapping[str, Path | None]) -> Rig:
    """The rig of these devices alone, in this order."""
    from dataclasses import replace

    devices = {}
    for role, file in intrinsics.items():
        if role not in rig.devices:
            raise UnknownNameError(f"device of {path}", role, rig.devices)
        device = rig.devices[role]
        devices[role] = device if file is None else replace(device, intrinsics=file)
        if devices[role].intrinsics is None:
            raise InvalidValueError(
                f"{path}: [{role}] names no intrinsics; `robot-runtime calibrate intrinsics` measures them"
            )
    return replace(rig, devices=devices)


def _board(rig: Rig, path: Path, board: Path | None) -> "Board":
    from calibration.board import Board
    from calibration.store import load

    file = board if board is not None else rig.more.get("board")
    if file is None:
        raise InvalidValueError(f"{path} names no board: give --board board.json")
    return load(Path(file), Board)
