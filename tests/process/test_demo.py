"""The demo as a user runs it, cut short: server, robot, pictures and page."""

import json

import pytest

from robot_runtime.cli import main
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.method.sampler_parts import HorizonAwareSchedule
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.probe import measure_latency
from robot_runtime.server.process import ServerProcess
from robot_runtime.server.warming import zero_observation
from sim.commands.demo import too_slow
from sim.scene.render import Renderer, RenderingUnavailableError
from sim.scene.world import World
from sim.tasks import make_task

pytestmark = pytest.mark.long


@pytest.mark.usefixtures("patient_time")
def test_the_demo_leaves_a_table_videos_plots_and_a_page(tmp_path, capsys):
    options = ["--tasks", "track", "--duration-s", "1.5", "--delay-ms", "100", "--output", str(tmp_path)]
    assert main(["demo", *options, "--json", str(tmp_path / "figures.json")]) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())["track"]
    assert list(figures) == ["synchronous", "pipelined-faster"]
    for method in ("synchronous", "pipelined-faster"):
        assert figures[method]["figures"]["num_chunks"] >= 1
    said = capsys.readouterr()
    assert "stalled" in said.out
    assert said.out.splitlines()[-1] == f"page:     {tmp_path / 'index.html'}"
    assert max(len(line) for line in said.out.splitlines() if str(tmp_path) not in line) <= 80
    assert "HOLD -> RUN" not in said.out + said.err
    assert "HOLD -> RUN" in (tmp_path / "log.txt").read_text()
    page = (tmp_path / "index.html").read_text()
    assert "100 ms of injected latency" in page
    assert "reaction p50 / p95" in page
    assert (tmp_path / "track-timeline.png").stat().st_size > 10_000
    try:
        Renderer(World(make_task("track")).model).close()
    except RenderingUnavailableError as error:
        pytest.skip(str(error))
    assert (tmp_path / "track.mp4").stat().st_size > 10_000


@pytest.mark.long
@pytest.mark.usefixtures("patient_time")
def test_the_mobile_demo_tells_how_far_the_base_is_driven_back(tmp_path):
    figures_path = tmp_path / "figures.json"
    options = ["--tasks", "wipe", "--duration-s", "2", "--json", str(figures_path)]
    assert main(["demo", "mobile", *options, "--output", str(tmp_path)]) == 0
    figures = json.loads(figures_path.read_text())["wipe"]
    assert list(figures) == ["naive", "pipelined-prefix"]
    for method in figures.values():
        assert method["figures"]["led_backward_m"] >= 0.0
    assert "backtracking [m]" in (tmp_path / "index.html").read_text()


def test_the_takeover_demo_leaves_a_log_a_picture_and_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # no browser, whose picture takes it a quarter of a minute
    figures_path = tmp_path / "figures.json"
    options = ["--duration-s", "0.2", "--json", str(figures_path), "--output", str(tmp_path)]
    assert main(["demo", "takeover", *options]) == 0
    figures = json.loads(figures_path.read_text())
    assert [figures[name]["takeovers"] for name in ("the policy alone", "with a person")] == [0, 0]
    [log] = (tmp_path / "runs").glob("*.mcap")
    said = capsys.readouterr().out
    assert f"log:      {log}" in said
    assert "no picture of the page: no browser is here that could draw it: chromium" in said
    assert (tmp_path / "takeover.png").stat().st_size > 10_000
    assert "hands back" in (tmp_path / "index.html").read_text()
    assert main(["demo", "takeover", "--tasks", "wipe", "--output", str(tmp_path)]) == 1
    assert "not --tasks" in capsys.readouterr().err


def test_what_cannot_be_shown_is_refused_before_anything_starts(tmp_path, capsys):
    assert main(["demo", "mobile", "--baseline", "naivest", "--output", str(tmp_path / "out")]) == 1
    assert "unknown method 'naivest'" in capsys.readouterr().err
    assert main(["demo", "--tasks", "fetsch", "--output", str(tmp_path / "out")]) == 1
    assert "unknown task 'fetsch'" in capsys.readouterr().err
    assert main(["demo", "--method", "vlash", "--output", str(tmp_path / "out")]) == 1
    assert "policy 'track', recipe mixed-schedule, cannot be run by this method" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_demo_whose_robot_never_moves_says_which_one_and_fails(tmp_path, capsys):
    options = ["--tasks", "track", "--duration-s", "0.5", "--delay-ms", "1500", "--method", "time-aligned"]
    assert main(["demo", *options, "--output", str(tmp_path)]) == 1
    assert "error: track, synchronous: the robot did not move: the run ended" in capsys.readouterr().err
    assert (tmp_path / "index.html").exists()


def test_a_machine_that_answers_too_late_is_named_in_place_of_the_comparison():
    assert too_slow([0.34, 0.51], delay_s=0.3) == ""
    sentence = too_slow([0.34, 0.96], delay_s=0.3)
    assert sentence.startswith("This machine did not keep up")
    assert "0.96 s or longer, of which the demo adds 0.30 s" in sentence
    assert too_slow([0.34], delay_s=0.3, late_share=0.1) == ""
    assert "held up 60 % of the control loop's ticks" in too_slow([0.34], delay_s=0.3, late_share=0.6)


@pytest.mark.long
def test_the_demos_server_has_nothing_left_to_warm_up_when_it_is_ready():
    schema, clock = make_task("track").schema, MonotonicClock()
    with ServerProcess("track") as server, PolicyClient(server.address, schema=schema) as client:
        welcome = client.wait_until_ready(10.0)
        seen = zero_observation(welcome.info.schema, welcome.info.tasks[0])
        measure_latency(client, welcome, seen, sampler=HorizonAwareSchedule(), clock=clock)
        assert client.readiness is None
