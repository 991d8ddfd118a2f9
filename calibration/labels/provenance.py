"""Calibration and settings that labels were made with, as JSON: `provenance`, and its hash."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from calibration.labels.joined import Joined
from calibration.store import pose_to_json


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
