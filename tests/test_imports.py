"""The robot side is light, and nothing is unsafe to read. Who may import whom: test_arrows.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT, imports

DATA_MODULES = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "functools", "hashlib", "itertools",
    "math", "struct", "sys", "types", "typing",
}  # fmt: skip
LIBRARIES = {"numpy", "pinocchio", "msgspec", "jaxtyping", "ruckig"}
OURS = {"robot_runtime.core", "robot_runtime.wire", "robot_runtime.errors"}


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize(
    "path", sources("robot_runtime/core", "robot_runtime/wire"), ids=lambda path: str(path.relative_to(ROOT))
)
def test_the_pure_parts_import_only_data_modules(path):
    for name in imports(path):
        is_ours = any(name == prefix or name.startswith(prefix + ".") for prefix in OURS)
        assert is_ours or name.split(".")[0] in DATA_MODULES | LIBRARIES, f"{path.name} imports {name}"
        if "core" in path.parts:
            assert not name.startswith("robot_runtime.wire"), "core does not know the wire"


def test_nothing_reads_pickles():
    """The gateway for clients that send nothing else reads their format as data, by a reader of its own."""
    fuzz = ROOT / "scripts" / "attack" / "fuzz_pickles.py"  # writes some that are to be refused
    for path in set(sources("robot_runtime", "policies", "drivers", "sim", "scripts")) - {fuzz}:
        assert not {"pickle", "dill", "cloudpickle", "joblib"} & imports(path), path


def test_a_gateway_loads_neither_torch_nor_anything_of_the_projects_whose_clients_it_answers():
    code = (
        "import sys, robot_runtime.server.gateways.lerobot, robot_runtime.server.gateways.groot;"
        "import robot_runtime.server.gateways.openpi, robot_runtime.server.gateways.process;"
        "print([name for name in ('torch', 'lerobot', 'mujoco', 'cv2') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_importing_the_runtime_loads_neither_torch_nor_mujoco_nor_asyncio():
    code = (
        "import sys, robot_runtime, robot_runtime.cli;"
        "import robot_runtime.robot.client, robot_runtime.robot.runner;"
        "print([name for name in ('torch', 'mujoco', 'matplotlib', 'cv2', 'asyncio') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_every_public_name_exists():
    import robot_runtime

    for name in robot_runtime.__all__:
        assert getattr(robot_runtime, name) is not None
