"""What an evaluation writes says how to make it again."""

import json
import platform
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

from robot_runtime.results import processor, result_json
from tests.source_tree import ROOT


def test_a_result_names_its_date_command_seeds_versions_and_commit():
    data = json.loads(result_json({"success": 0.5}, seeds=range(3, 6)))
    assert data["success"] == 0.5
    made = data["made_by"]
    assert made["seeds"] == [3, 4, 5]
    assert made["python"] == platform.python_version()
    assert made["versions"]["numpy"] == np.__version__
    assert made["versions"]["robot-runtime"] == metadata.version("robot-runtime")
    assert made["date"].endswith("+00:00")
    assert {"command", "commit", "is_changed", "machine"} <= made.keys()
    assert (made["commit"] is None) == (made["is_changed"] is None)


def test_a_result_names_a_module_that_python_runs_as_it_is_typed(tmp_path):
    path = tmp_path / "import.json"
    command = [sys.executable, "-m", "scripts.bench.import_time", "--rounds", "1", "--json", str(path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    made = json.loads(path.read_text())["made_by"]
    assert made["command"] == f"python -m scripts.bench.import_time --rounds 1 --json {path}"


def test_a_result_names_the_instruction_sets_that_multiplied(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    found = json.loads(result_json({}))["made_by"]["processor"]
    assert found["torch"] == torch.backends.cpu.get_cpu_capability()
    assert found["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    is_listed = "avx2" in found["instruction_sets"]
    assert is_listed == torch.cpu.get_capabilities().get("avx2", False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    assert "ONEDNN_MAX_CPU_ISA" not in processor()


def test_naming_the_instruction_sets_loads_no_torch():
    code = (
        "import sys; from robot_runtime.results import processor as p; p(); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
