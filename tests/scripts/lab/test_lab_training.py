"""Which policies a comparison finds, and how it trains those that it lacks."""

import threading

import pytest

from robot_runtime.core.method.table import METHODS
from scripts.lab import training as lab_training
from scripts.lab.policies import MissingPolicy, find_policy, recipe_needed
from scripts.lab.training import TrainingError, train_missing


def test_a_method_names_the_training_it_needs():
    needed = {
        name: recipe_needed(METHODS[name])
        for name in ("naive", "committed-prefix", "vlash", "faster", "a2c2")
    }
    assert needed == {
        "naive": "plain", "committed-prefix": "prefix", "vlash": "offset", "faster": "mixed-schedule",
        "a2c2": "residual",
    }  # fmt: skip


def test_policies_are_found_where_they_are_or_named_with_the_command_that_makes_them(tmp_path):
    track = tmp_path / "track"
    (track / "plain-1").mkdir(parents=True)
    (track / "prefix-2").mkdir()

    def found(recipe: str, seed: int, *, stand_in: bool = False) -> str:
        policy = find_policy(tmp_path, "track", recipe, seed, stand_in=stand_in)
        return str(policy) if isinstance(policy, MissingPolicy) else f"{policy.recipe}-{policy.training_seed}"

    assert found("plain", 1) == found("plain", 1, stand_in=True) == "plain-1"
    assert found("plain", 2, stand_in=True) == "prefix-2"
    assert found("mixed-schedule", 0) == "mixed-schedule-0"  # the shipped one
    assert found("plain", 0, stand_in=True) == found("prefix", 0, stand_in=True) == "mixed-schedule-0"
    assert found("prefix", 0).startswith("robot-runtime train --task track --recipe prefix --seed 0")
    of_seed_2 = f"--seed 2 --demonstrations {track}/demonstrations.npz --output {track}"
    assert found("plain", 2) == (
        f"robot-runtime train --task track --recipe plain --init {track}/prefix-2 {of_seed_2}/plain-2"
    )
    assert found("masked", 2) == (
        f"robot-runtime train --task track --recipe masked --init {track}/plain-2 {of_seed_2}/masked-2"
    )


@pytest.mark.long
def test_a_missing_policy_is_trained_after_those_it_goes_on_from(tmp_path):
    masked = find_policy(tmp_path, "track", "masked", 7)
    assert isinstance(masked, MissingPolicy)
    assert [each.folder.name for each in masked.to_train] == ["prefix-7", "plain-7", "masked-7"]
    policy, other = (find_policy(tmp_path, "track", recipe, 7) for recipe in ("plain", "offset"))
    assert isinstance(policy, MissingPolicy)
    assert isinstance(other, MissingPolicy)
    names: list[str] = []
    todo = {str(each): each for each in (*policy.to_train, *other.to_train)}
    train_missing(
        list(todo.values()),
        workers=2,
        options=("--steps", "2", "--batch-size", "8", "--episodes", "1"),
        on_policy=lambda trained: names.append(trained.folder.name),
    )
    assert names[0] == "prefix-7"
    assert set(names) == {"prefix-7", "plain-7", "offset-7"}
    assert all(
        not isinstance(find_policy(tmp_path, "track", r, 7), MissingPolicy) for r in ("plain", "offset")
    )


def test_only_the_demonstrations_are_waited_for_and_not_the_training_they_came_with(tmp_path, monkeypatch):
    missing = [find_policy(tmp_path, "track", "prefix", seed) for seed in (7, 8)]
    second_has_begun = threading.Event()

    def train(policy, options):
        demonstrations = policy.folder.parent / "demonstrations.npz"
        if not demonstrations.exists():
            demonstrations.parent.mkdir()
            demonstrations.touch()
            assert second_has_begun.wait(timeout=30)  # it is still training
        second_has_begun.set()

    monkeypatch.setattr(lab_training, "_train", train)
    assert train_missing(missing, workers=2) == []


def test_the_tasks_share_the_workers_that_collect_their_demonstrations(tmp_path, monkeypatch):
    tasks = ("track", "strike")
    missing = [find_policy(tmp_path, task, "prefix", seed) for task in tasks for seed in (7, 8)]
    told = []

    def train(policy, options):
        policy.folder.parent.mkdir(exist_ok=True)
        (policy.folder.parent / "demonstrations.npz").touch()
        told.append((policy.folder.parent.name, policy.folder.name, options))

    monkeypatch.setattr(lab_training, "_train", train)
    assert train_missing(missing, workers=7) == []
    assert dict(options for *_, options in told if options) == {"--workers": "3"}
    assert sorted(task for task, _, options in told if options) == sorted(tasks)


def test_policies_that_others_go_on_from_are_trained_first(tmp_path, monkeypatch):
    recipes = ("prefix", "plain", "offset", "residual")
    missing = [find_policy(tmp_path, "track", recipe, seed) for seed in (7, 8) for recipe in recipes]
    trained = []

    def train(policy, options):
        (policy.folder.parent / "demonstrations.npz").touch()
        policy.folder.mkdir()
        trained.append(policy.folder.name)

    (tmp_path / "track").mkdir()
    monkeypatch.setattr(lab_training, "_train", train)
    assert train_missing(missing, workers=1) == []
    assert trained[:4] == ["prefix-7", "prefix-8", "plain-7", "plain-8"]
    assert sorted(trained[4:]) == ["offset-7", "offset-8", "residual-7", "residual-8"]


def test_a_policy_that_is_still_being_written_is_nothing_to_go_on_from(tmp_path):
    prefix, plain = (find_policy(tmp_path, "track", recipe, 7) for recipe in ("prefix", "plain"))
    prefix.folder.mkdir(parents=True)
    (tmp_path / "track" / "demonstrations.npz").touch()
    assert not lab_training.can_start(plain, running=[prefix])
    assert lab_training.can_start(plain, running=[])


def test_a_policy_that_cannot_be_trained_says_why(tmp_path):
    policy = find_policy(tmp_path, "track", "prefix", 7)
    assert isinstance(policy, MissingPolicy)
    with pytest.raises(TrainingError, match="no-such-option"):
        train_missing([policy], workers=1, options=("--no-such-option",))
