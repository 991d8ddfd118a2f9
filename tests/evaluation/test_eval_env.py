"""`robot-runtime eval --env` from an empty folder, with files of the user's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "own_env.py"
POLICY = ROOT / "tests" / "evaluation" / "points.py"


def run(tmp_path, *options: str, policy: str = f"{POLICY}:policy") -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "robot_runtime.cli", "eval", "--policy", policy, "--episodes", "4"]
    return subprocess.run(
        [*command, *options], capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}
    )


@pytest.mark.long
def test_what_an_env_raises_is_shown_once_with_its_seed_and_its_step(tmp_path):
    (tmp_path / "fragile.py").write_text(
        "from tests.evaluation.points import Point\n"
        "class Fragile(Point):\n"
        "    def reset(self, seed):\n"
        "        self.seed = seed\n"
        "        return super().reset(seed)\n"
        "    def step(self, action):\n"
        "        if self.seed == 10_002 and len(self.told) == 6:\n"
        "            1 / 0\n"
        "        return super().step(action)\n"
    )
    out = run(tmp_path, "--env", "fragile.py:Fragile", "--workers", "1")
    assert out.returncode == 1
    assert "ZeroDivisionError" in out.stderr
    assert "env 'point', seed 10002, step 7" in out.stderr
    assert out.stderr.count("Traceback") == 1
    assert "leaked" not in out.stderr
    assert len(out.stderr.splitlines()) <= 10


CART = """
import gymnasium, numpy as np
class Cart(gymnasium.Env):
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,))
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = np.zeros(4, np.float32)
        return self.x, {}
    def step(self, action):
        self.x[:2] = action
        return self.x, 1.0, False, False, {}
"""


def test_an_own_class_with_gymnasiums_interface_is_told_its_time_limit_in_a_file(tmp_path):
    pytest.importorskip("gymnasium")
    (tmp_path / "mygym.py").write_text(CART)
    (tmp_path / "cart.toml").write_text(
        'max_steps = 7\ncontrol_hz = 10\nsuccess = "none"\naction_names = ["x", "y"]\n'
    )
    told = ["--env-file", "cart.toml", "--workers", "1", "--json", "out.json"]
    out = run(tmp_path, "--env", "mygym.py:Cart", *told)
    assert out.returncode == 0, out.stderr
    summary = json.loads((tmp_path / "out.json").read_text())["summary"]
    assert (summary["return"], summary["success"]) == (7.0, None)


@pytest.mark.long
def test_the_table_shows_what_is_not_zero_and_says_so_of_an_env_without_success(tmp_path):
    (tmp_path / "silent.py").write_text(
        "import robot_runtime as rr\nfrom tests.evaluation.points import Point\n"
        "class Silent(Point):\n    def shown(self):\n"
        "        return rr.EnvStep(state=super().shown().state, metrics={'bumps': 0})\n"
    )
    out = run(tmp_path, "--env", "silent.py:Silent", "--workers", "1", "--plot", "out.png")
    assert out.returncode == 0, out.stderr
    rows = [line.split("│")[1:3] for line in out.stdout.splitlines() if line.startswith("│")]
    figures = {name.strip(): value.strip() for name, value in rows}
    assert figures["success"] == "unknown: no step gave is_success"
    assert [name for name, value in figures.items() if value == "0"] == ["bumps"]
    assert "more figures are 0 or have no value" in out.stdout
    assert (tmp_path / "out.png").stat().st_size > 0


def test_the_example_is_short_and_is_evaluated_under_latency(tmp_path):
    assert len(EXAMPLE.read_text().splitlines()) <= 30
    late = ["--delay-ms", "200", "--workers", "1"]
    out = run(tmp_path, "--env", f"{EXAMPLE}:Point", *late, "--json", "out.json")
    assert out.returncode == 0, out.stderr
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["summary"]["success"] == 1.0
    assert [episode["seed"] for episode in data["episodes"]] == [10_000, 10_001, 10_002, 10_003]


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--env", "nowhere.py:env"], "there is no such file"),
        (["--env", f"{EXAMPLE}:nothing"], "nothing"),
        (["--env", "gymnasium:CartPole-v1"], "expected a Box"),
        (["--env", f"{EXAMPLE}:Point", "--env-file", "told.toml"], "declares what it is in its info"),
        (["--env", "broken.py:env"], "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_anything_runs(tmp_path, options, words):
    (tmp_path / "broken.py").write_text("env = 1 / 0\n")
    (tmp_path / "told.toml").write_text("max_steps = 5\n")
    out = run(tmp_path, *options)
    assert out.returncode == 1
    assert words in out.stderr
