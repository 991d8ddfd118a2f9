"""Runs by itself: `serve` with the echo policy and a gateway; serve_echo.py FOLDER PORT KIND."""

import logging
import sys
from pathlib import Path

import msgspec
from echo import EchoPolicy

from policies.commands.serve import Serve, serve
from robot_runtime.server.gateways.key_map import Entry, KeyMap

NAMES = {
    "openpi": KeyMap(convention="droid", stroke_m=0.08, cameras={"wrist": "observation/wrist_image_left"}),
    "groot": KeyMap(convention="si"),
    "lerobot": KeyMap(
        convention="si", q=Entry(names=("one.pos", "two.pos")), gripper_width=Entry(names=("gripper.pos",))
    ),
}


def main(folder: Path, port: str, kind: str) -> int:
    names, token = folder / "names.json", folder / "token"
    names.write_bytes(msgspec.json.encode(NAMES[kind]))
    token.write_text("open sesame")
    token.chmod(0o600)
    where = {kind: f"127.0.0.1:{port}"}
    args = Serve(
        policy=("echo",), address="tcp://127.0.0.1:*", names=names, token=token, json=folder / "ready.json",
        **where,
    )  # fmt: skip
    return serve([EchoPolicy], args)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
