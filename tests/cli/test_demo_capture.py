"""A demo that was interrupted goes on from what it has done, and keeps nothing that is half done."""

import json

from calibration.capture.raw import RawCapture
from robot_runtime.cli.demo_capture import Kept, recorded
from robot_runtime.cli.progress import counted


def test_a_session_that_was_recorded_is_not_recorded_again(tmp_path):
    folder = tmp_path / "session"
    (folder / "capture").mkdir(parents=True)  # as an interrupted demo leaves it
    (folder / "capture" / "half").touch()
    clip = recorded(folder, range(1), Kept(tmp_path), counted(with_notes=True))
    assert not (folder / "capture" / "half").exists()
    made_ns = (folder / "capture" / "capture.json").stat().st_mtime_ns
    again = recorded(folder, range(1), Kept(tmp_path), counted(with_notes=True))
    assert (folder / "capture" / "capture.json").stat().st_mtime_ns == made_ns
    assert RawCapture.open(folder / "capture").is_closed
    assert (again.seed, again.success) == (clip.seed, True)
    assert again.X_WC.p.tobytes() == clip.X_WC.p.tobytes()
    assert again.snapshots is not None


def test_what_another_version_has_done_is_done_anew(tmp_path):
    kept = Kept(tmp_path)
    kept.note("policy", {"steps": 1})
    assert Kept(tmp_path).get("policy") == {"steps": 1}
    said = json.loads((tmp_path / "kept.json").read_text())
    for damaged in (json.dumps({**said, "version": ["0", "x"]}), "{", "[]"):
        (tmp_path / "kept.json").write_text(damaged)
        assert Kept(tmp_path).get("policy") is None
