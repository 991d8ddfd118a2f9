"""Trials of a run's log become episodes: rows, pictures and times counted, takeovers and pauses marked."""

import os
from dataclasses import replace
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
from msgspec import structs

from robot_runtime.commands.teleop_export import export_jobs
from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.orders import EpisodeMark, Outcome
from robot_runtime.core.plan.axis_limiter import Shortfall
from robot_runtime.core.plan.clip import Clip
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.dataset import from_log as from_log_module
from robot_runtime.dataset import run_columns as run
from robot_runtime.dataset.check.dataset import check_dataset
from robot_runtime.dataset.from_log import from_log
from robot_runtime.dataset.sampled import grid_ns, newest_at
from robot_runtime.dataset.stored import StoredDataset, array_of
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.reader import RunLog
from robot_runtime.log.records import scan
from tests.dataset.runs import MS, NAMES, START_NS, picture_at, state_at, tick_at, write_run

pytest.importorskip("datasets", reason="writes LeRobot datasets")
FPS = 20
HUMAN, POLICY, HOLD = Authority.HUMAN, Authority.POLICY, Authority.HOLD
NONE_OF_20 = "none of 20 frames can be learned from: trainable is False in the rest"
CAMERA = "observation.images.wrist"


def at_s(seconds: float) -> int:
    return START_NS + round(seconds * NS_PER_S)


def mark(start_s: float, end_s: float, outcome: Outcome, *, keep: bool = True) -> EpisodeMark:
    return EpisodeMark(start_ns=at_s(start_s), end_ns=at_s(end_s), outcome=outcome, keep=keep)


def columns_of(root: Path, episode: int = 0) -> dict[str, np.ndarray]:
    dataset = StoredDataset(root)
    table = dataset.table(dataset.episodes[episode])
    numbers = {name: array_of(table, name) for name in dataset.numbers}
    return numbers | {run.COLLECTOR: np.array(table[run.COLLECTOR].to_pylist())}


def stock(root: Path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset("a/run", root=root, video_backend="pyav")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Three trials, the second not worth keeping, of a run at 100 Hz with a camera at 30; exported at 20."""
    folder = tmp_path_factory.mktemp("exported")
    marks = [
        mark(0.5, 2.0, Outcome.SUCCESS),
        mark(2.0, 2.5, Outcome.FAILURE, keep=False),
        mark(2.6, 4.0, Outcome.OPERATOR_ABORT),
    ]
    path = write_run(folder / "log", seconds=4.5, marks=marks, tasks=[(at_s(3.0), "fold the towel")])
    return path, folder / "dataset", from_log(RunLog.open(path), folder / "dataset", fps=FPS)


def test_trials_become_episodes_with_their_outcome_and_rows_are_counted_against_time(exported):
    _, root, done = exported
    assert [each.num_frames for each in done] == [30, 0, 28]
    assert done[1].why == "marked as not worth keeping"
    rows = [episode.row for episode in StoredDataset(root).episodes]
    assert [row["outcome_code"] for row in rows] == ["success", "operator_abort"]
    assert [row["episode_success"] for row in rows] == ["success", None]
    assert [row["trial"] for row in rows] == [0, 2]
    assert rows[0]["policy_id"] == "pi-toy"
    assert rows[0]["scene_seed"] == 3
    assert check_dataset(StoredDataset(root)).episodes("good") == [0, 1]


def test_stock_lerobot_reads_it_with_as_many_pictures_as_rows(exported):
    _, root, _ = exported
    dataset = stock(root)
    assert (dataset.num_episodes, dataset.num_frames) == (2, 58)
    for k in (0, 13, 29, 30, 57):
        frame = dataset[k]
        shown = 255 * frame[CAMERA][:, 30, :].mean()
        taken_ns = int(frame["capture.time_ns.wrist"])
        assert abs(shown - picture_at(taken_ns).pixels[30, 0, 0]) < 1.5  # the very picture, after two codecs
        assert frame["t_mono_ns"].dtype.itemsize == 8


def test_a_frame_has_the_newest_step_and_the_newest_picture_there_were_by_then(exported):
    _, root, _ = exported
    columns = columns_of(root)
    t_ns = columns[run.TIME].ravel()
    np.testing.assert_array_equal(t_ns, [at_s(0.5) + k * NS_PER_S // FPS for k in range(30)])
    np.testing.assert_array_equal(columns["capture.time_ns.state"].ravel(), t_ns // (10 * MS) * (10 * MS))
    newest = [START_NS + 7 * MS + round(n * 1e9 / 30) for n in range(200)]
    expected = [max(each for each in newest if each <= now) for now in t_ns]
    np.testing.assert_array_equal(columns["capture.time_ns.wrist"].ravel(), expected)
    state = columns["observation.state"]
    np.testing.assert_allclose(state[:, 0], (t_ns - START_NS) / 1e9, atol=1e-5)
    np.testing.assert_allclose(columns["action"][:, 0], state[:, 0] + 0.1, atol=1e-5)
    np.testing.assert_allclose(columns[run.POLICY_ACTION][:, 0], state[:, 0] + 0.2, atol=1e-5)
    assert StoredDataset(root).names("action") == NAMES
    assert (columns[run.CHUNK] == 7).all()
    assert columns[run.TICK].ravel()[:3].tolist() == [50, 55, 60]


def test_a_task_that_changes_in_mid_run_changes_from_that_frame_on(exported):
    _, root, _ = exported
    dataset = stock(root)
    texts = [dataset[k]["task"] for k in range(30, 58)]
    assert texts == ["wave"] * 8 + ["fold the towel"] * 20


def test_what_was_exported_is_not_exported_again_and_another_run_is_added(exported, tmp_path):
    path, root, _ = exported
    again = from_log(RunLog.open(path), root, fps=FPS)
    assert [each.num_frames for each in again] == [0, 0, 0]
    assert again[0].why == "in the dataset already"
    other = write_run(tmp_path / "log", seconds=1.0)
    assert from_log(RunLog.open(other), root, fps=FPS)[0].num_frames == 20
    assert len(StoredDataset(root).episodes) == 3
    last = StoredDataset(root).episodes[-1].row
    assert (last["outcome_code"], last["outcome_confidence"]) == ("unknown", 0.0)  # nobody said


# ---- a takeover, against a table written by hand ---------------------------------------------------------

TABLE = [
    # from, arm, gripper, phase: state, is_intervention, trainable, boundary, segment, intervention, collector
    (0.0, POLICY, POLICY, "none", (0, 0, 1, 0, 0, -1, "pi-toy")),
    (0.5, HOLD, POLICY, "request", (1, 0, 0, 0, 1, -1, "pi-toy")),
    (0.7, HUMAN, POLICY, "align", (1, 1, 0, +1, 2, 0, "human")),
    (0.9, HUMAN, POLICY, "correct", (1, 1, 1, 0, 2, 0, "human")),
    (1.3, HOLD, POLICY, "release", (2, 0, 0, -1, 3, -1, "pi-toy")),
    (1.5, POLICY, POLICY, "none", (0, 0, 1, 0, 4, -1, "pi-toy")),
    (1.8, HUMAN, HUMAN, "recover", (1, 1, 1, +1, 5, 1, "human")),
]


def taken_over(t_ns: int):
    _, arm, gripper, phase, _ = next(row for row in reversed(TABLE) if at_s(row[0]) <= t_ns)
    return tick_at(t_ns, arm=arm, gripper=gripper, phase=HandoverPhase(phase))


@pytest.fixture(scope="module")
def taken(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("taken")
    marks = [mark(0.1, 2.1, Outcome.SUCCESS)]
    path = write_run(folder / "log", seconds=2.2, tick=taken_over, marks=marks)
    from_log(RunLog.open(path), folder / "dataset", fps=FPS)
    return folder / "dataset"


def test_every_field_of_a_takeover_is_as_the_table_says(taken):
    columns, k = columns_of(taken), 0
    for number, (from_s, arm, gripper, phase, row) in enumerate(TABLE):
        until_s = TABLE[number + 1][0] if number + 1 < len(TABLE) else 2.1
        state, is_human, trainable, boundary, segment, intervention, collector = row
        first = True
        while k < 40 and columns[run.TIME][k, 0] < at_s(until_s):
            assert columns[run.TIME][k, 0] >= at_s(from_s)
            assert columns[run.EVO_STATE][k, 0] == state
            assert columns[run.IS_INTERVENTION][k, 0] == is_human
            assert columns[run.TRAINABLE][k, 0] == bool(trainable)
            assert columns[run.BOUNDARY][k, 0] == (boundary if first else 0)
            assert columns[run.SEGMENT][k, 0] == segment
            assert columns[run.INTERVENTION][k, 0] == intervention
            assert columns[run.COLLECTOR][k] == collector
            who = [run.AUTHORITIES[i] for i in columns[run.AUTHORITY][k]]
            assert who == [arm.value, gripper.value]
            assert run.PHASES[columns[run.PHASE][k, 0]] == phase
            mask = [arm is HUMAN, arm is HUMAN, gripper is HUMAN]
            assert columns[run.AUTHORITY_MASK][k].tolist() == mask
            assert columns[run.POLICY_VALID][k, 0]  # in the shadow too
            k, first = k + 1, False
    assert k == 40
    assert columns[run.NEXT_VALID].ravel().tolist() == [True] * 39 + [False]  # nothing is hidden


def test_the_command_before_the_limits_is_the_policys_where_it_drives_and_what_was_asked_elsewhere(taken):
    columns = columns_of(taken)
    human = columns[run.AUTHORITY][:, 0] == run.AUTHORITIES.index("human")
    drives = columns[run.AUTHORITY][:, 0] == run.AUTHORITIES.index("policy")
    before, sent = columns[run.PRE_SAFETY][:, 0], columns["action"][:, 0]
    np.testing.assert_allclose(before[drives], sent[drives] + 0.1, atol=1e-5)
    np.testing.assert_allclose(before[human], sent[human], atol=1e-5)


def test_an_episode_says_how_often_a_person_had_it_and_whether_the_policy_drove_on(taken):
    row = StoredDataset(taken).episodes[0].row
    assert row["num_interventions"] == 2
    assert not row["continue_after_release"]  # it ends while a person has it


# ---- what goes wrong in a run ----------------------------------------------------------------------------


def test_without_a_policy_what_a_person_has_not_moved_is_hers_and_there_is_nobody_to_blame(tmp_path):
    def alone(t_ns):
        for until_s, arm, phase in ((0.2, HOLD, "none"), (0.4, HUMAN, "align"), (0.6, HUMAN, "adapt")):
            if t_ns < at_s(until_s):
                return tick_at(t_ns, arm=arm, gripper=HOLD, phase=HandoverPhase(phase), mode=Mode.HOLD)
        is_late = t_ns >= at_s(0.8)
        arm, phase = (Authority.SAFETY, "correct") if is_late else (HUMAN, "correct")
        return tick_at(t_ns, arm=arm, gripper=HOLD, phase=HandoverPhase(phase), mode=Mode.HOLD)

    for policy, expected in (("", [True, False, True, True, False]), ("pi-toy", [False] * 5)):
        path = write_run(tmp_path / f"log of {policy}", seconds=1.0, tick=alone, policy=policy)
        from_log(RunLog.open(path), folder := tmp_path / f"with {policy}", fps=FPS)
        trainable = columns_of(folder)[run.TRAINABLE].ravel()
        assert trainable.tolist() == [each for each in expected for _ in range(4)]
        [verdict] = check_dataset(StoredDataset(folder)).verdicts
        found = [finding.text for finding in verdict.findings if finding.check == "trainable"]
        assert found == ([] if not policy else [NONE_OF_20])


def test_a_hole_in_the_steps_is_no_valid_transition(tmp_path):
    def with_hole(t_ns):
        return None if at_s(0.5) <= t_ns < at_s(0.8) else tick_at(t_ns)

    path = write_run(tmp_path / "log", seconds=1.2, tick=with_hole)
    [done] = from_log(RunLog.open(path), tmp_path / "dataset", fps=FPS)
    follows = columns_of(tmp_path / "dataset")[run.NEXT_VALID].ravel()
    # The grid begins with the first picture, so frame 10, at 0.507 s, is the first to show the last step.
    assert np.flatnonzero(~follows).tolist() == [*range(10, 16), 23]
    assert done.num_late == 4


def test_a_trial_in_which_the_log_is_damaged_is_left_out(tmp_path):
    path = write_run(tmp_path / "runs", seconds=8.0, camera_hz=1.0)
    chunks = scan(path).chunks
    content = bytearray(path.read_bytes())
    content[chunks[len(chunks) // 2].offset + 100] ^= 1
    path.write_bytes(content)
    (done,) = from_log(RunLog.open(path), tmp_path / "dataset", fps=20, cameras=())
    assert (done.num_frames, done.why) == (0, "the log is damaged in it")


def test_control_steps_that_lie_years_apart_are_no_trial(tmp_path):
    def years_apart(t_ns):
        return replace(tick_at(t_ns), now_ns=t_ns if t_ns < at_s(0.3) else t_ns + 10**18)

    path = write_run(tmp_path / "runs", seconds=0.5, tick=years_apart)
    (done,) = from_log(RunLog.open(path), tmp_path / "dataset", fps=20, cameras=())
    assert done.num_frames == 0
    assert "control ticks in" in done.why


def test_a_pause_stays_in_and_is_marked(tmp_path):
    def paused(t_ns):
        if at_s(0.4) <= t_ns < at_s(0.7):
            return tick_at(t_ns, arm=HOLD, mode=Mode.HOLD, has_plan=False)
        return tick_at(t_ns)

    path = write_run(tmp_path / "log", seconds=1.0, tick=paused)
    from_log(RunLog.open(path), tmp_path / "dataset", fps=FPS)
    columns = columns_of(tmp_path / "dataset")
    assert np.flatnonzero(~columns[run.TRAINABLE].ravel()).tolist() == [*range(8, 14)]
    assert columns[run.NEXT_VALID].ravel()[:-1].all()
    assert (columns[run.CHUNK][8:14] == -1).all()
    assert not columns[run.POLICY_VALID][8:14].any()
    assert (columns[run.POLICY_ACTION][8:14] == 0).all()


def test_numbers_that_are_none_are_held_and_their_frames_are_not_trainable(tmp_path):
    def broken(t_ns):
        state = state_at(t_ns)
        if at_s(0.3) <= t_ns < at_s(0.4):
            parts = {**state.parts, "arm": structs.replace(state.parts["arm"], q=np.array([np.nan, 1.0]))}
            return state.with_parts(parts)
        return state

    path = write_run(tmp_path / "log", seconds=0.8, state=broken)
    from_log(RunLog.open(path), tmp_path / "dataset", fps=FPS)
    columns = columns_of(tmp_path / "dataset")
    assert np.isfinite(columns["observation.state"]).all()
    assert np.flatnonzero(~columns[run.TRAINABLE].ravel()).tolist() == [6, 7]


def test_what_the_limits_took_is_told_by_part(tmp_path):
    clip = Clip({"gripper": Shortfall(distance=0.01, velocity=True)})
    path = write_run(tmp_path / "log", seconds=0.5, tick=lambda t_ns: tick_at(t_ns, clip=clip))
    from_log(RunLog.open(path), tmp_path / "dataset", fps=FPS)
    assert columns_of(tmp_path / "dataset")[run.CLAMPED].tolist() == [[False, True]] * 10


def test_a_camera_that_dies_repeats_its_last_picture_which_is_told_and_not_trainable(tmp_path):
    def dies(t_ns, name):
        return picture_at(t_ns) if t_ns < at_s(0.5) else None

    marks = [mark(0.1, 1.6, Outcome.FAULT)]
    path = write_run(tmp_path / "log", seconds=1.7, picture=dies, marks=marks)
    [done] = from_log(RunLog.open(path), tmp_path / "dataset", fps=FPS)
    assert done.num_frames == 30
    assert done.num_repeated["wrist"] == 21
    trainable = columns_of(tmp_path / "dataset")[run.TRAINABLE].ravel()
    assert trainable[:18].all()
    assert not trainable[18:].any()
    [verdict] = check_dataset(StoredDataset(tmp_path / "dataset")).verdicts
    assert "stale" in {finding.check for finding in verdict.findings}


def test_a_trial_before_the_first_picture_is_left_out_and_a_late_camera_shortens_one(tmp_path):
    def late(t_ns, name):
        return picture_at(t_ns) if t_ns >= at_s(1.0) else None

    marks = [mark(0.0, 0.8, Outcome.SUCCESS), mark(0.8, 1.6, Outcome.SUCCESS)]
    path = write_run(tmp_path / "log", seconds=1.7, picture=late, marks=marks)
    done = from_log(RunLog.open(path), tmp_path / "dataset", fps=FPS)
    assert "gave no image" in done[0].why
    assert done[1].num_frames in (11, 12)


def test_a_run_without_cameras_is_exported_in_numbers(tmp_path, exported):
    path, _, _ = exported
    from_log(RunLog.open(path), tmp_path / "dataset", fps=FPS, cameras=())
    assert StoredDataset(tmp_path / "dataset").cameras == ()


def test_a_run_of_another_robot_is_refused_and_the_dataset_stays(tmp_path, exported):
    path, root, _ = exported
    before = StoredDataset(root).info
    other = write_run(tmp_path / "other", seconds=0.3, robot="other")
    with pytest.raises(InvalidValueError, match="of 'toy' at 20 frames a second, the run of 'other' at 20"):
        from_log(RunLog.open(other), root, fps=FPS)
    large = write_run(tmp_path / "large", seconds=0.3, picture=lambda t_ns, name: picture_at(t_ns, (96, 64)))
    with pytest.raises(InvalidValueError, match="has shape"):
        from_log(RunLog.open(large), root, fps=FPS)
    with pytest.raises(InvalidValueError, match="at 30"):
        from_log(RunLog.open(path), root, fps=30)
    with pytest.raises(InvalidValueError, match="no images of camera 'chest'"):
        from_log(RunLog.open(path), tmp_path / "new", fps=20, cameras=("chest",))
    assert StoredDataset(root).info == before
    assert not (tmp_path / "new").exists()


def test_a_size_that_changes_and_bytes_that_are_no_picture_are_named(tmp_path):
    def grows(t_ns, name):
        return picture_at(t_ns, (48, 64) if t_ns < at_s(0.5) else (96, 64))

    path = write_run(tmp_path / "log", seconds=1.0, picture=grows)
    with pytest.raises(InvalidValueError, match=r"from \(48, 64\) to \(96, 64\) pixels"):
        from_log(RunLog.open(path), tmp_path / "dataset", fps=FPS)
    assert not (tmp_path / "dataset").exists()


def test_an_export_that_dies_in_an_episode_leaves_those_before_it_and_goes_on(tmp_path, monkeypatch):
    marks = [mark(0.1 + 0.2 * i, 0.3 + 0.2 * i, Outcome.SUCCESS) for i in range(3)]
    log = RunLog.open(write_run(tmp_path / "log", seconds=0.8, marks=marks))
    film, calls = from_log_module._filming, []

    def dies(*args):
        calls.append(args)
        if len(calls) == 2:
            (args[1] / "0.mp4").write_bytes(b"half")
            raise KeyboardInterrupt
        return film(*args)

    monkeypatch.setattr(from_log_module, "_filming", dies)
    with pytest.raises(KeyboardInterrupt):
        from_log(log, tmp_path / "dataset", fps=FPS)
    assert stock(tmp_path / "dataset").num_episodes == 1
    done = from_log(log, tmp_path / "dataset", fps=FPS)
    assert [each.num_frames for each in done] == [0, 4, 4]
    assert len(StoredDataset(tmp_path / "dataset").episodes) == 3


# ---- the grid --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "fps", "num"), [(60, 30, 1800), (1, 20, 20), (0.04, 20, 1), (0, 20, 0)])
def test_there_are_as_many_frames_as_time_has_place_for(seconds, fps, num):
    times = grid_ns(START_NS, at_s(seconds), fps)
    assert len(times) == num
    assert all(t_ns < at_s(seconds) for t_ns in times)


def test_the_newest_step_by_then_is_taken_and_the_first_where_there_is_none():
    class At:
        def __init__(self, t_ns):
            self.tick = self
            self.now_ns = t_ns

    found = newest_at([5, 10, 11, 25, 100], iter([At(10), At(20), At(30)]))
    assert [each.now_ns for each in found] == [10, 10, 10, 20, 30]
    assert list(newest_at([1], iter([]))) == []


def test_trials_of_a_run_that_goes_on_are_exported_as_they_end_and_none_twice(exported, tmp_path):
    path, _, _ = exported
    jobs, done = Queue(), Queue()
    for job in ((path, at_s(2.0)), (path, at_s(4.0)), None):
        jobs.put(job)
    export_jobs(jobs, done, tmp_path / "dataset", fps=FPS, cameras=None, parent=os.getppid())
    first, second = done.get(), done.get()
    assert [each.num_frames for each in first] == [30, 0, 28]  # the log has both by now
    assert {each.why for each in second} == {"in the dataset already", "marked as not worth keeping"}
    jobs.put((path, at_s(2.0)))
    jobs.put(None)
    export_jobs(jobs, done, tmp_path / "dataset", fps=10, cameras=None, parent=os.getppid())
    assert "at 20 frames a second, the run of" in done.get()
    export_jobs(jobs, done, tmp_path / "dataset", fps=FPS, cameras=None, parent=0)  # who asked has gone
    assert done.empty()


@pytest.mark.parametrize(
    ("marks", "end", "source", "confidence"),
    [
        ([], {}, "", 0.0),
        ([], {"success": "False"}, "sim", 1.0),
        ([mark(0.0, 0.9, Outcome.UNKNOWN)], {}, "", 0.0),
        ([mark(0.0, 0.9, Outcome.SUCCESS)], {}, "operator", 1.0),
    ],
    ids=["nobody there", "a judge", "ended by nobody", "an operator"],
)
def test_an_outcome_names_who_said_it_and_nobody_if_nobody_was_there(
    tmp_path, marks, end, source, confidence
):
    log = write_run(tmp_path / "run", seconds=1.0, marks=marks, is_virtual=False, end=end)
    from_log(RunLog.open(log), tmp_path / "data", fps=FPS)
    (episode,) = StoredDataset(tmp_path / "data").episodes
    row = episode.row
    assert (row["outcome_source"], row["outcome_confidence"]) == (source, confidence)
