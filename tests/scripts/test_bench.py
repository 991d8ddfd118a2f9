"""`python -m scripts.bench`: a benchmark is refused in one sentence before it begins, or can run."""

import re

import pytest

from scripts.bench.commands import Subcommand, main
from tests.cli.options_of import NUMBERS, is_path, options
from tests.cli.test_options import complaint

OPTIONS = list(options(Subcommand))


def test_every_number_has_a_range_and_every_path_says_what_it_is_for():
    checked = [option for option in OPTIONS if option.kind in NUMBERS or is_path(option)]
    assert len(checked) > 30
    assert [str(option) for option in checked if not option.rules] == []


@pytest.mark.long
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e18", "x", ""])
def test_numbers_that_mean_nothing_are_refused_with_the_name_of_the_option(value, tmp_path, capsys):
    for option in OPTIONS:
        if option.kind in NUMBERS:
            refused = complaint(option, value, tmp_path, capsys)
            assert refused is not None, option
            assert option.name in refused, option


def test_nothing_is_refused_where_something_is_counted_or_divided_by(tmp_path, capsys):
    numbers = [option for option in OPTIONS if option.kind in NUMBERS]
    takes_zero = {option.name for option in numbers if complaint(option, 0, tmp_path, capsys) is None}
    assert takes_zero == {
        "--delays",
        "--seed",
        "--seeds",
        "--inference-delay",
        "--subscribers",
        "--connections",
    }


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path, capsys):
    for option in OPTIONS:
        if is_path(option) and ("json" in option.name or "output" in option.name):
            refused = complaint(option, "/proc/nothing", tmp_path, capsys)
            assert refused is not None, option
            assert re.fullmatch(rf"{option.name} names a \w+ to (write|make), and /proc/nothing .*", refused)


def test_help_is_of_the_benchmark_that_was_typed(capsys):
    for name in sorted({option.command[0] for option in OPTIONS}):
        with pytest.raises(SystemExit):
            main([name, "--help"])
        shown = capsys.readouterr().out
        assert f"python -m scripts.bench {name} " in shown
        assert "None" not in shown, name
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(f" {option.command[0]} " in shown for option in OPTIONS)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["methods", "--tasks", "fetch"],
            "task of the comparison 'fetch'; valid: conveyor, pick_place, strike, ",
        ),
        (["gpu", "--starts", "--device", "cpu"], "--starts is for --serve"),
        (["stream", "--task", "nope"], "unknown task 'nope'"),
        (["stream", "--policy", "nope"], "unknown policy or checkpoint folder 'nope'"),
        (["stream", "--policy", "hold"], "policy 'hold' has no network of ours"),
        (
            ["stream", "--policy", "fetch"],
            "policy 'fetch' cannot do 'track': base: the robot has no",
        ),
        (["stream", "--policy", "fetch", "--task", "fetch"], "the sampler HorizonAwareSchedule"),
        (["stream", "--inference-delay", "32"], "--inference-delay is below 32"),
        (["robots", "--policy", "nope"], "unknown policy or checkpoint folder 'nope'"),
        (["robots", "--policy", "fetch-seeing"], "needs cameras, which these robots have not"),
    ],
)
def test_what_does_not_fit_is_refused_before_there_is_a_progress_bar_or_a_server(args, words, capsys):
    assert main(args) == 1
    shown = capsys.readouterr()
    assert words in shown.err.replace("\n", " ")
    assert shown.out == ""
