"""Printed paper in the rooms: the face of the calibration board, and the tags of the gripper's cube."""

import cv2
import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import UInt8

from calibration.board import DICTIONARIES, Board
from robot_runtime.core.values.transforms import quaternion_from_rotation
from sim.capture import tags as gripper_tags
from sim.capture.scene import BOARD, X_HAND_E

_TEXELS, _TAG_TEXELS = 96, 120
"""Texels along a square's side, and along a tag's with its margin."""
_PAPER_M = 2e-4
"""Thickness of paper; its support is lowered by twice that [m]."""


def add_prints(spec: mujoco.MjSpec, board: Board | None) -> None:
    """Add a board's face to its body, and the tag cube to the gripper.

    board: as printed; None: the rooms have none.
    """
    if board is not None:
        width, height = board.size_m
        face = pin.SE3(np.eye(3), np.array([width / 2, height / 2, 0.0]))
        spec.geom(BOARD).pos[2] += 2 * _PAPER_M
        _add_paper(spec, spec.body(BOARD), "board_face", board.picture(_TEXELS), face, (width, height))
    hand, middle = spec.body("hand"), X_HAND_E.act(np.array(gripper_tags.CUBE_P_E))
    hand.add_geom(
        name="tag_cube",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=middle,
        size=[gripper_tags.CUBE_EDGE_M / 2 - 2 * _PAPER_M] * 3,
        rgba=[0.95, 0.95, 0.95, 1.0],
        contype=0,
        conaffinity=0,
        mass=0.0,
    )
    for tag in gripper_tags.cube():
        edge = gripper_tags.CUBE_EDGE_M
        _add_paper(spec, hand, f"tag_{tag.number}", tag_picture(tag), X_HAND_E * tag.X_ET, (edge, edge))


def tag_picture(tag: gripper_tags.Tag) -> UInt8[np.ndarray, "n n"]:
    """Image of a cube face: its tag with a white margin."""
    dictionary = cv2.aruco.getPredefinedDictionary(DICTIONARIES[gripper_tags.DICTIONARY])
    inner = round(_TAG_TEXELS * tag.size_m / gripper_tags.CUBE_EDGE_M)
    margin = (_TAG_TEXELS - inner) // 2
    marker = cv2.aruco.generateImageMarker(dictionary, tag.number, inner)
    return cv2.copyMakeBorder(marker, *(margin,) * 4, cv2.BORDER_CONSTANT, value=255)


def _add_paper(
    spec: mujoco.MjSpec,
    body: mujoco.MjsBody,
    name: str,
    image: UInt8[np.ndarray, "h w"],
    X: pin.SE3,
    size_m: tuple[float, float],
) -> None:
    """Add an image on a thin plate in a body's frame; X: its centre, x to its right, y down, z into it."""
    rgb = np.ascontiguousarray(np.repeat(image[:, :, None], 3, axis=2))
    texture = spec.add_texture(
        name=name,
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        width=image.shape[1],
        height=image.shape[0],
        nchannel=3,
    )
    texture.data = rgb.tobytes()
    material = spec.add_material(name=name, texuniform=False, texrepeat=[1.0, 1.0], emission=0.35)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    material.specular = 0.0
    R = X.rotation @ np.diag([1.0, -1.0, -1.0])
    body.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=X.act(np.array([0.0, 0.0, _PAPER_M / 2])),
        quat=quaternion_from_rotation(R),
        size=[size_m[0] / 2, size_m[1] / 2, _PAPER_M / 2],
        mass=0.0,
        material=name,
        contype=0,
        conaffinity=0,
    )
