"""The stages from capture to command lie end to end, whatever order the clocks give, and become a trace."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from policies.scripted import SinePolicy
from robot_runtime.cli import main
from robot_runtime.core.journal import Asked, Looked, PartCame, Ticked
from robot_runtime.core.method.table import method_named
from robot_runtime.evaluation.loop import play, play_together
from robot_runtime.evaluation.traces import constant
from robot_runtime.log.config import LogConfig
from robot_runtime.log.entries import Arrived, Timed
from robot_runtime.log.perfetto import trace_events
from robot_runtime.log.reader import RunLog
from robot_runtime.log.stages import STAGES, stages_of
from sim.episodes.task_env import TaskEnv

MS = 1_000_000


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """A log of a policy that waves, 100 ms late."""
    return logged(tmp_path_factory.mktemp("runs"), delay_ms=100)


@pytest.fixture(scope="module")
def entries(path: Path) -> list:
    return list(RunLog.open(path).entries())


def logged(folder: Path, *, delay_ms: float) -> Path:
    env = TaskEnv("track", control_period_ns=10 * MS)
    method = method_named("time-aligned")
    policy, trace, log = SinePolicy(), constant(delay_ms), LogConfig(folder=folder)
    play_together(policy, [play(policy, env, method=method, seed=1, trace=trace, log=log)])
    return next(folder.iterdir())


def on_a_network(entries: list, *, queue_ns: int, infer_ns: int, sent_ns: int, arrived_ns: int) -> list:
    """As if the answers had come from a server, so long after they were asked for and before they came; each
    tick took 2 ms."""
    out, asked_ns, looked_ns = [], {}, 0
    for entry in entries:
        match entry:
            case Looked(now_ns=looked_ns):
                pass
            case Asked(request=request):
                asked_ns[request.request_id] = looked_ns
            case PartCame(part=part, now_ns=now_ns):
                sent = asked_ns[part.request_id] + sent_ns
                out.append(Arrived(part.request_id, sent, now_ns - arrived_ns))
                part = structs.replace(part, queue_ns=queue_ns, infer_ns=infer_ns)
                entry = PartCame(part, now_ns, entry.outcome, entry.splice)
        out.append(entry)
        if isinstance(entry, Ticked):
            out.append(Timed(entry.now_ns, 0, 0, 2 * MS))
    return out


@pytest.mark.long
def test_each_stage_takes_as_long_as_it_was_made_to(entries):
    told = on_a_network(entries, queue_ns=7 * MS, infer_ns=30 * MS, sent_ns=MS, arrived_ns=4 * MS)
    journeys = list(stages_of(told))
    assert len(journeys) > 10
    for of in journeys[1:]:
        took = of.stages_ns
        assert (took["queue"], took["inference"], took["sending"]) == (7 * MS, 30 * MS, MS)
        assert took["waiting"] == 4 * MS
        assert took["network"] == 100 * MS - 1 * MS - 4 * MS - 37 * MS
        assert took["tick"] == 2 * MS


around = st.integers(-20 * MS, 400 * MS)


@given(queue=st.integers(0, 400 * MS), infer=st.integers(0, 400 * MS), sent=around, arrived=around)
def test_the_stages_add_up_to_capture_to_command_and_none_is_negative(entries, queue, infer, sent, arrived):
    told = on_a_network(entries[:400], queue_ns=queue, infer_ns=infer, sent_ns=sent, arrived_ns=arrived)
    ages = {}
    for entry in told:
        if isinstance(entry, Ticked) and entry.tick.source is not None:
            ages.setdefault(entry.tick.source.request_id, entry.tick.age_ns)
    journeys = list(stages_of(told))
    assert journeys
    for of in journeys:
        assert tuple(of.stages_ns) == STAGES
        assert min(of.stages_ns.values()) >= 0
        assert sum(of.stages_ns.values()) == of.command_ns - of.captured_ns
        if arrived >= 0 and sent <= 50 * MS:
            assert of.command_ns - of.captured_ns == ages[of.request_id] + 2 * MS


def test_slices_of_a_track_do_not_overlap_and_an_arrow_leads_through_all_stages(entries):
    told = on_a_network(entries, queue_ns=7 * MS, infer_ns=30 * MS, sent_ns=MS, arrived_ns=4 * MS)
    journeys = list(stages_of(told))
    events = trace_events(journeys, told)["traceEvents"]
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    for slices in tracks.values():
        slices.sort()
        assert all(end <= start + 2e-3 for (_, end), (start, _) in pairwise(slices))
    arrows = [event for event in events if event["ph"] in "stf"]
    assert [event["ph"] for event in arrows if event["id"] == journeys[3].request_id] == [
        "s",
        *"ttttttt",
        "f",
    ]
    assert np.isfinite([event["ts"] for event in arrows]).all()


def test_a_run_in_which_nothing_ran_is_told_so(tmp_path, capsys):
    assert main(["trace", str(logged(tmp_path, delay_ms=60_000))]) == 1
    assert "no answer of a policy has run" in capsys.readouterr().err


def test_the_command_prints_the_stages_and_writes_what_perfetto_reads(path, tmp_path, capsys):
    assert main(["trace", str(path), "--output", str(tmp_path / "trace.json")]) == 0
    assert "planned" in capsys.readouterr().out
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
