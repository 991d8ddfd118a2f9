"""`scripts/bench/gpu_figures.py`, which has eight minutes on a GPU, with small models on a CPU."""

import json
import subprocess
from itertools import count
from types import SimpleNamespace

import pytest

pytest.importorskip("lerobot", reason="whose policies they are")
pytest.importorskip("transformers", reason="SmolVLA and pi need it")

from scripts.bench import gpu_figures
from scripts.bench.gpu_figures import SETTINGS, Options, Setting, measure


@pytest.mark.long
def test_settings_are_measured_while_there_is_time_and_the_rest_is_named(tmp_path, monkeypatch):
    again = []
    monkeypatch.setattr(gpu_figures, "second_time", lambda setting, args: again.append(setting))
    path = tmp_path / "figures.json"
    args = Options(small=True, device="cpu", n=1, limit_s=45.0, json=path)
    settings = (Setting(model="smolvla", cameras=1), Setting(model="pi05"), Setting(model="pi0"))
    found = measure(settings, args, now_s=count(step=10.0).__next__)
    assert {row["model"] for row in found["rows"]} == {"smolvla"}
    assert [left["model"] for left in found["left_out"]] == ["pi05", "pi0"]
    assert again == []
    kept = json.loads(path.read_text())
    assert kept["chunks"][0]["ready_s"] > 0.0
    assert kept["made_by"]["versions"]["torch"]


def test_a_setting_that_fails_in_its_own_process_is_named_and_the_others_go_on(monkeypatch):
    def fail(setting, args, *, n):
        raise subprocess.CalledProcessError(1, "bench gpu")

    measured = {"rows": [], "chunks": [], "served": [], "device": "CPU"}
    monkeypatch.setattr(gpu_figures, "measured_apart", fail)
    monkeypatch.setattr(Setting, "bench", lambda *_, **__: SimpleNamespace(measured=lambda: dict(measured)))
    settings = (Setting(model="pi05", one_graph=True), Setting(model="smolvla"))
    found = measure(settings, Options(small=True, device="cpu", n=1))
    assert [failed["model"] for failed in found["failed"]] == ["pi05"]
    assert found["device"] == "CPU"


def test_the_most_wanted_settings_come_first_and_none_comes_twice():
    assert SETTINGS[:2] == (Setting(model="pi05"), Setting(model="smolvla"))
    assert len(set(SETTINGS)) == len(SETTINGS)
