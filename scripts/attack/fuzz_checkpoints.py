"""Damages checkpoint folders and robot files and loads them: each must load or be refused, and nothing may
run.

    for each folder    JSON changed in structure, or bytes changed in any file; then `load_policy`
    robot.toml         drivers, data sheets and options of an attacker; then `open_robot`

A folder is LeRobot's (ACT, its real class, random weights), one of ours, of an openpi server, or of a robot
(`--robots` alone: thousands per minute). A crash is printed with the case that repeats it; so is a folder
that ran something, as shown by a marker file, or by Python's audit hooks on processes, sockets and code.
"""

import copy
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.load import load_policy
from policies.shipped import find_checkpoint
from robot_runtime.cli.options import Count, Seed
from robot_runtime.errors import RobotRuntimeError
from robot_runtime.robot_file import open_robot
from scripts.harness import run_script

_FORBIDDEN = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "pty.spawn",
    "socket.connect",
    "exec",
)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**300, 1e308, 0.5, "", "a", "../../etc/passwd", "\n",
    "x" * 9000, [], {}, [[]], [1] * 300, {"a": {"b": [1]}}, "os.system",
    "subprocess.Popen", "__import__", "evil/model",
)  # fmt: skip
_STEPS: tuple[dict[str, Any], ...] = (
    {"class": "subprocess.Popen", "config": {"args": ["touch", "MARKER"]}},
    {"class": "os.system", "config": {"command": "touch MARKER"}},
    {"registry_name": "device_processor", "class": "builtins.exec", "config": {"device": "cpu"}},
    {"registry_name": "groot_n1_7_vlm_encode_v1", "config": {}},
    {"registry_name": "tokenizer_processor", "config": {"tokenizer_name": "evil/words"}},
    {"registry_name": "normalizer_processor", "config": {}, "state_file": "../../weights.safetensors"},
)
_ROBOT = """
[devices.bus]
driver = "mine.py:Bus"
[parts.arm]
driver = "ideal-arm"
limits = { of = "fr3" }
[parts.lift]
driver = "@bus.arm"
"""
_MINE = """
from os import system
from subprocess import Popen, run


class Arm:
    num_joints = 7
    def read(self): ...
    def write(self, command): ...
    def stop(self): ...


class Bus:
    def __init__(self, **options): self.arm = Arm()
"""
_CODE = (
    *(
        "subprocess:Popen",
        "subprocess:run",
        "os:system",
        "os:execv",
        "pty:spawn",
        "runpy:run_path",
        "code:interact",
    ),
    *(
        "builtins:exec",
        "builtins:eval",
        "importlib:import_module",
        "mine.py:Popen",
        "mine.py:run",
        "mine.py:system",
    ),
    *(
        "mine:Popen",
        "mine:run",
        "mine.py:Arm",
        "mine:Arm",
        "mine:Bus",
        "drivers.child:Child",
        "drivers.ideal:IdealArm",
    ),
    *("torch:load", "numpy:load", "multiprocessing:Process", "robot_runtime.page.process:PageProcess"),
    *(
        "asyncio.subprocess:Process",
        "../mine.py:Arm",
        "/usr/lib/python3.12/subprocess.py:Popen",
        "antigravity:x",
    ),
    *(
        "@bus.__init__.__globals__.Popen",
        "@bus.arm.__class__",
        "@bus",
        "ideal-gripper",
        ":",
        "x:",
        "a b:c",
        "",
    ),
)
_OPTIONS = (
    "args = 'touch MARKER'", "args = ['touch', 'MARKER']", "shell = true", "command = 'touch MARKER'",
    "config = 'MARKER'", "module = 'os'", "what = 'x'", "path = 'MARKER'", "latency_s = 'MARKER'", "q = [0]",
    "limits = {of = 'os:environ'}", "limits = {of = 'mine:run'}", "kinematics = {urdf = 'MARKER'}",
    "calibration = 'MARKER'", "plugins = ['this']",
)  # fmt: skip
_SHELL = ("args = 'touch MARKER'", "shell = true")
_ATTACKS = (
    *(
        (f"{place}:{name}", _SHELL)
        for place in ("subprocess", "mine", "mine.py")
        for name in ("Popen", "run")
    ),
    *((f"{place}:system", ("command = 'touch MARKER'",)) for place in ("os", "mine", "mine.py")),
)
"""Drivers that would run a command if any callable were called with its table."""


@dataclass
class Fuzz:
    """Damage checkpoint folders and robot files, and load them."""

    num: Count = 10_000
    seed: Seed = 0
    robots: bool = False
    """Damage only robot files."""

    def main(self) -> int:
        """Return 1 if a folder did something forbidden."""
        happened: list[str] = []
        is_loading = False

        def audit(event: str, arguments: tuple) -> None:
            if not is_loading or not event.startswith(_FORBIDDEN):
                return
            if event == "exec" and _is_a_modules_own(arguments):
                return
            if event == "socket.connect" and str(arguments[1][0]).startswith("127."):
                return  # an openpi.json may connect to this machine
            happened.append(f"{event} {arguments!r:.200}")

        outcomes: Counter[str] = Counter()
        faults = 0
        with tempfile.TemporaryDirectory() as scratch:
            sound = [_robot(Path(scratch) / "robot")]
            if not self.robots:
                sound += _sound_folders(Path(scratch))
            for folder in sound:  # triggers late imports
                _load(folder)
            sys.addaudithook(audit)
            marker, started_s = Path(scratch) / "MARKER", time.perf_counter()
            for i in range(self.num):
                rng = random.Random(f"{self.seed} {i}")
                folder = Path(scratch) / "damaged"
                _copy(rng.choice(sound), folder)
                how = _damage(folder, rng, marker)
                is_loading = True
                try:
                    outcome = _load(folder)
                except (Exception, SystemExit) as error:
                    outcome = "crash"
                    print(f"seed {self.seed} {i}, {how}: {type(error).__name__}: {error!s:.300}")
                    traceback.print_exc()
                is_loading = False
                faults += outcome == "crash"
                outcomes[outcome] += 1
                if happened or marker.exists():
                    faults += 1
                    print(f"seed {self.seed} {i}, {how}: ran {happened or 'a command'}")
                    happened.clear()
                    marker.unlink(missing_ok=True)
            took_s = time.perf_counter() - started_s
        print(f"{self.num} folders in {took_s:.0f} s: {dict(outcomes)}, {faults} faults")
        return int(faults > 0)


def _is_a_modules_own(arguments: tuple) -> bool:
    """Return whether code belongs to a late import of an installed module, or was made by a dataclass."""
    file = str(getattr(arguments[0], "co_filename", ""))
    own = (sys.prefix, sys.base_prefix, "<", str(Path(__file__).parents[2]))
    return file.startswith(own) or file.endswith("/mine.py")  # beside a robot file


def _load(folder: Path) -> str:
    try:
        if (file := folder / "robot.toml").exists():
            with open_robot(str(file)):
                return "robot"
        load_policy(folder)
    except RobotRuntimeError as error:
        return type(error).__name__
    return "policy"


def _robot(folder: Path) -> Path:
    """Write a robot file with its own driver beside it."""
    folder.mkdir()
    (folder / "robot.toml").write_text(_ROBOT)
    (folder / "mine.py").write_text(_MINE)
    return folder


def _copy(folder: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)


def _sound_folders(scratch: Path) -> list[Path]:
    """Make one undamaged folder of each kind; LeRobot's may be damaged in its metadata too."""
    ours = scratch / "ours"
    shutil.copytree(find_checkpoint("track"), ours)
    seeing = scratch / "seeing"
    shutil.copytree(find_checkpoint("fetch-seeing"), seeing)
    openpi = scratch / "openpi"
    openpi.mkdir()
    config = json.loads((ours / "config.json").read_text())
    described = {"url": "ws://127.0.0.1:1", "schema": config["schema"], "action_spec": config["action_spec"]}
    described |= {"names": {"convention": "si"}, "api_key": "key", "tasks": ["a"]}
    (openpi / "openpi.json").write_text(json.dumps(described))
    return [_lerobot(scratch / "act"), _lerobot(scratch / "act"), ours, seeing, openpi]


def _lerobot(folder: Path) -> Path:
    """Make a small ACT without images, as LeRobot saves it, with our description."""
    import torch
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors

    from policies.lerobot.describe import Declared, describe

    config = make_policy_config(
        "act", dim_model=16, n_heads=2, dim_feedforward=16, n_encoder_layers=1, n_vae_encoder_layers=1,
        latent_dim=4, chunk_size=4, n_action_steps=4, pretrained_backbone_weights=None, device="cpu",
        input_features={
            "observation.state": PolicyFeature(FeatureType.STATE, (3,)),
            "observation.environment_state": PolicyFeature(FeatureType.ENV, (2,)),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (3,))},
    )  # fmt: skip
    ones = {"mean": torch.zeros(3), "std": torch.ones(3)}
    parts = (
        get_policy_class("act")(config),
        *make_pre_post_processors(config, dataset_stats={"observation.state": ones, "action": ones}),
    )
    for part in parts:
        part.save_pretrained(folder)
    describe(folder, Declared(num_joints=2, has_gripper=True, fps=20.0))
    return folder


# ---- damage ------------------------------------------------------------------------------------------------


def _damage(folder: Path, rng: random.Random, marker: Path) -> str:
    """Change one to three things; return where."""
    if (file := folder / "robot.toml").exists():
        return _damage_robot(file, rng, marker)
    done = []
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(
            sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors"))
        )
        if path.suffix == ".json" and rng.random() < 0.8:
            done.append(_damage_json(path, rng, marker))
        else:
            done.append(_damage_bytes(path, rng))
    return "; ".join(done)


def _damage_robot(file: Path, rng: random.Random, marker: Path) -> str:
    section = rng.choice(("devices", "parts", "sensors", "cameras", "operator"))
    name = rng.choice(("arm", "hold_to_run", "teleop") if section == "operator" else ("bus", "arm", "x"))
    if rng.random() < 0.5:
        driver, options = rng.choice(_ATTACKS)
    else:
        driver, options = rng.choice(_CODE), tuple(rng.sample(_OPTIONS, rng.randint(0, 3)))
    lines = [f"[{section}.{name}]", f'driver = "{driver}"', *options]
    more = "\n".join(lines).replace("MARKER", str(marker))
    place = _ROBOT.find(f"[{section}.{name}]")
    end = _ROBOT.find("\n[", place + 1) if place >= 0 else -1
    kept = _ROBOT if place < 0 else _ROBOT[:place] + (_ROBOT[end:] if end >= 0 else "")
    file.write_text(f"{kept}\n{more}\n")
    return more.replace("\n", "; ")


def _damage_json(path: Path, rng: random.Random, marker: Path) -> str:
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return f"{path.name} as it was"
    if rng.random() < 0.02:
        deep = rng.choice((30, 1_000, 200_000))
        path.write_text('{"a": [' * deep + "1" + "]}" * deep)
        return f"{path.name} {deep} deep"
    if isinstance(data, dict) and isinstance(data.get("steps"), list) and rng.random() < 0.3:
        step = json.loads(json.dumps(rng.choice(_STEPS)).replace("MARKER", str(marker)))
        data["steps"].insert(rng.randint(0, len(data["steps"])), step)
        path.write_text(json.dumps(data))
        return f"{path.name} step {step!r:.100}"
    places = list(_places(data))
    if not places:
        return f"{path.name} as it was"
    holder, key = rng.choice(places)
    match rng.randrange(4):
        case 0:
            del holder[key]
            did = "without"
        case 1 if isinstance(holder, dict):
            holder[rng.choice(("class", "type", "registry_name", "state_file", "__class__"))] = rng.choice(
                _VALUES
            )
            did = "with more beside"
        case 2:
            other, there = rng.choice(places)
            holder[key] = copy.deepcopy(other[there])
            did = "exchanged"
        case _:
            holder[key] = rng.choice(_VALUES)
            did = "other"
    text = json.dumps(data)
    path.write_text(text.replace("1e+308", rng.choice(("NaN", "Infinity", "1e999", "1e308"))))
    return f"{path.name} {did} {key!r:.60}"


def _places(data: Any) -> Any:
    for key in list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, key
        yield from _places(data[key])


def _damage_bytes(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    where = rng.randrange(len(content) + 1)
    where = min(where, rng.choice((8, 200, 5_000, len(content))))  # headers are at the front
    match rng.randrange(4):
        case 0:
            del content[where:]
        case 1:
            content[where:where] = rng.randbytes(rng.randint(1, 64))
        case 2:
            content[:8] = rng.choice((0, 1, 2**31, 2**63, 2**64 - 1)).to_bytes(8, "little")
        case _:
            for i in range(where, min(where + rng.randint(1, 16), len(content))):
                content[i] = rng.randrange(256)
    path.write_bytes(content)
    return f"{path.name} bytes at {where}"


if __name__ == "__main__":
    run_script(Fuzz, Fuzz.main)
