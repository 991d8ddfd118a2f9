"""A demo that was interrupted goes on from what it has done, and keeps nothing that is half done."""

import json

import pytest

from calibration.capture.raw import RawCapture
from robot_runtime.cli.progress import counted
from sim.capture.performance import load_performance
from sim.capture.person import perform, person_of
from sim.commands.demo_capture import recorded
from sim.commands.demo_stages import Kept, Stages


class Interrupted(Exception):
    pass


class InterruptedStages(Stages):
    """A terminal at which somebody strikes Ctrl-C when one demonstration is done."""

    def update(self, bar, done, total, note="") -> None:
        if done == 1:
            raise Interrupted


def of(kind: type[Stages] = Stages) -> Stages:
    return kind(counted(with_notes=True), 7)


@pytest.mark.long
def test_a_recording_goes_on_after_the_last_demonstration_and_is_not_made_again(tmp_path):
    folder = tmp_path / "session"
    (folder / "capture").mkdir(parents=True)  # as an earlier demo leaves it
    (folder / "capture" / "half").touch()
    with pytest.raises(Interrupted):
        recorded(folder, range(2), Kept(tmp_path), of(InterruptedStages))
    [first] = (folder / "demonstrations").iterdir()
    performed_ns = first.stat().st_mtime_ns
    (folder / "capture").mkdir()
    (folder / "capture" / "half").touch()
    assert recorded(folder, range(2), Kept(tmp_path), of()) == [0, 1]
    assert first.stat().st_mtime_ns == performed_ns
    assert not (folder / "capture" / "half").exists()
    made_ns = (folder / "capture" / "capture.json").stat().st_mtime_ns
    assert recorded(folder, range(2), Kept(tmp_path), of()) == [0, 1]
    assert (folder / "capture" / "capture.json").stat().st_mtime_ns == made_ns
    assert RawCapture.open(folder / "capture").is_closed
    again, kept = perform("wipe", 0, person=person_of(0), film=True), load_performance(first)
    for name in ("t_ns", "width", "x_WG", "x_WB", "snapshots"):
        assert getattr(kept, name).tobytes() == getattr(again, name).tobytes(), name
    for name in ("X_WC", "X_WH", "X_WE"):
        assert getattr(kept, name).p.tobytes() == getattr(again, name).p.tobytes()
        assert getattr(kept, name).q.tobytes() == getattr(again, name).q.tobytes()
    assert {name: p.tobytes() for name, p in kept.things.items()} == {
        name: p.tobytes() for name, p in again.things.items()
    }
    assert (kept.seed, kept.success, kept.words) == (again.seed, again.success, again.words)


def test_a_demonstration_that_was_cut_is_none(tmp_path):
    (tmp_path / "wipe-0.npz").write_bytes(b"PK")
    assert load_performance(tmp_path / "wipe-0.npz") is None
    assert load_performance(tmp_path / "wipe-1.npz") is None


def test_every_step_is_named_and_counted_where_there_is_no_terminal(capsys):
    stages = of()
    bar = stages.begin("the person demonstrates", total=6)
    stages.update(bar, 3, 6)
    stages.begin("the cameras record it")
    assert capsys.readouterr().out == "1/7 the person demonstrates\n2/7 the cameras record it\n"


def test_what_another_version_has_done_is_done_anew(tmp_path):
    kept = Kept(tmp_path)
    kept.note("policy", {"steps": 1})
    assert Kept(tmp_path).get("policy") == {"steps": 1}
    said = json.loads((tmp_path / "kept.json").read_text())
    for damaged in (json.dumps({**said, "version": ["0", "x"]}), "{", "[]"):
        (tmp_path / "kept.json").write_text(damaged)
        assert Kept(tmp_path).get("policy") is None
