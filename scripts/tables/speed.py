"""Tables of `docs/results/speed.md` and `gpu.md`: what was timed."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from scripts.tables.shared import of, quantiles, result, table

PEERS = {
    "zmq": "bare ZeroMQ, the floor",
    "our threads": "our threads and sockets, no protocol",
    "ours": "ours",
    "openpi": "openpi-client 0.1.2",
    "LeRobot": "LeRobot 0.6.1, as it comes",
    "LeRobot, no sleep": "LeRobot 0.6.1, without its wait of 1/30 s",
}
Found = Mapping[str, Any]
"""Figures of a benchmark, as its result file holds them."""
MODELS = {"pi05": "pi0.5", "pi0": "pi0", "smolvla": "SmolVLA"}


def loop(found: Found) -> str:
    cost = found["tick_cost_us"]
    lines = [[name, quantiles(row, digits=0), f"{row['n']:,}"] for name, row in cost.items()]
    return table(["what", "p50 / p95 / p99 [µs]", "n"], lines)


def lateness(found: Found) -> str:
    lines = [
        [
            f"{case['rate_hz']:.0f} Hz, {case['load']}, {'SCHED_FIFO' if case['fifo'] else 'as it is'}",
            *(quantiles(case[who], ("p50", "p99")) for who in ("ours", "floor")),
            *(f"{case[who]['skipped']} of {case[who]['n']:,}" for who in ("ours", "floor")),
        ]
        for case in found["lateness_ms"]
    ]
    head = ["loop", "ours, p50 / p99 [ms]", "bare loop", "ours, skipped ticks", "bare loop"]
    return table(head, lines)


def peers(figures: Found) -> str:
    rows = figures["rows"]
    places = list(dict.fromkeys((row["payload"][0], row["pace"]) for row in rows))
    found = {(row["path"], row["payload"][0], row["pace"]): row for row in rows}
    lines = [
        [PEERS.get(path, path), *(quantiles(found[path, *place]) for place in places)]
        for path in dict.fromkeys(row["path"] for row in rows)
    ]
    return table(["client and server", *(_place(*place) for place in places)], lines)


def _place(payload: str, pace: str) -> str:
    return f"{payload}, {'one after the other' if pace == 'sequential' else pace}"


def wire(found: Found) -> str:
    rows = found["rows"]
    floor = {(row["payload"], row["pace"]): row["p50"] for row in rows if row["path"] == "zmq"}
    lines = [
        [
            _place(row["payload"][0], row["pace"]),
            PEERS[row["path"]],
            quantiles(row),
            f"{row['p50'] / floor[row['payload'], row['pace']]:.1f}×",
        ]
        for row in rows
    ]
    return table(["payload", "path", "p50 / p95 / p99 [ms]", "over the floor"], lines)


def stream(found: Found) -> str:
    whole = found["times_ms"]["in-process: whole chunk"]["p50"]
    lines = [
        [name, quantiles(times, digits=1), f"{times['p50'] / whole:.2f}"]
        for name, times in found["times_ms"].items()
    ]
    return table(["moment", "p50 / p95 / p99 [ms]", "of sampling in the process"], lines)


def reaction(found: Found) -> str:
    lines = [
        [
            f"{row['chunks']}, {row['delay']}",
            row["method"],
            f"{row['measured']['mean_s']:.3f} / {row['bound']['mean_s']:.3f}",
            f"{row['measured']['p95_s']:.3f} / {row['bound']['p95_s']:.3f}",
            "–" if row["synchronous_over_this"] is None else f"{row['synchronous_over_this']:.1f}×",
            f"{row['requests_per_s']:.1f}",
            str(row["events"]),
        ]
        for row in found["rows"]
    ]
    head = [
        "chunks, delay",
        "method",
        "mean / bound [s]",
        "p95 / bound [s]",
        "shorter than synchronous",
        "requests/s",
        "events",
    ]
    return table(head, lines)


def robots(found: Found) -> str:
    lines = [
        [
            str(row["robots"]),
            quantiles(row, ("p50", "p99"), 1),
            f"{row['answered']:,} of {row['asked']:,}",
            str(row["shed"]),
            str(row["too_late"]),
            f"{row['lost']} / {row['wrong']}",
        ]
        for row in found["paced"]
    ]
    head = ["robots", "p50 / p99 [ms]", "in time", "shed", "deadline over", "lost / another robot's"]
    return table(head, lines)


def batches(found: Found) -> str:
    lines = [[row["server"], quantiles(row, digits=1), str(row["n"])] for row in found["loop"]]
    return table(["server", "p50 / p95 / p99 [ms]", "n"], lines)


def cameras(*found: Found) -> str:
    lines = []
    for at_rate in found:
        by_loop, rate = defaultdict(list), f"{at_rate['control_hz']:g}"
        for row in at_rate["rounds"]:
            by_loop[row["loop"]].append(row)
        for name, rows in by_loop.items():
            ticks, lost = (sum(row[key] for row in rows) for key in ("ticks", "lost"))
            tick_ms, chunks = (
                sorted(row[key] for row in rows)[len(rows) // 2] for key in ("tick_ms", "chunks_per_s")
            )
            lines.append([f"{rate} Hz", name, f"{tick_ms:.2f}", f"{chunks:.1f}", f"{lost} of {ticks:,}"])
    return table(["rate", "loop", "tick [ms]", "chunks/s", "lost ticks"], lines)


def whole_body(found: Found) -> str:
    lines = [[name, quantiles(row, digits=0), f"{row['n']:,}"] for name, row in found.items()]
    return table(["solver", "p50 / p95 / p99 [µs]", "n"], lines)


def moving_base(found: Found) -> str:
    lines = [
        [name, quantiles(row, digits=1), f"{row['max']:.1f}", f"{row['n']:,}"] for name, row in found.items()
    ]
    return table(["what", "p50 / p95 / p99", "worst", "n"], lines)


def start_up(found: Found) -> str:
    line = [
        f"{1e3 * found['ours_s']:.0f}",
        f"{1e3 * found['floor_s']:.0f}",
        f"{found['ratio']:.2f}×",
        str(found["n"]),
    ]
    return table(["`import robot_runtime` [ms]", "its dependencies alone [ms]", "ratio", "n"], [line])


def gpu() -> str:
    """A line for each model and number of robots."""
    found = result("bench-gpu")
    stages = defaultdict[tuple[str, int], dict[str, dict]](dict)
    for row in found["rows"]:
        stages[row["model"], row["robots"]][row["stage"]] = row
    before = {(r["model"], r["robots"], r["stage"]): r["p50_ms"] for r in found["before"]["rows"]}
    lines = [_of_model(model, robots, of, before) for (model, robots), of in stages.items()]
    head = [
        "model", "robots", "whole chunk, p50 / p99", "floor", "before fusing", "first row out",
        "image encoder", "prefill", "one step", "LeRobot's own call",
    ]  # fmt: skip
    return table(head, lines)


def _of_model(model: str, robots: int, of: Mapping[str, dict], before: Mapping[tuple, float]) -> list[str]:
    def p50(stage: str) -> str:
        return f"{of[stage]['p50_ms']:.1f}" if stage in of else "–"

    whole = of["whole chunk"]
    was = before.get((model, robots, "whole chunk"))
    lerobot = next((stage for stage in of if "LeRobot" in stage), "")
    return [
        MODELS[model],
        str(robots),
        f"{whole['p50_ms']:.1f} / {whole['p99_ms']:.1f}",
        f"{whole['floor_ms']:.1f}",
        "–" if was is None else f"{was:.1f}",
        *(p50(stage) for stage in ("first row out", "image encoder", "prefill", "one expert step", lerobot)),
    ]


def times(path: str, over: str, payload: str, pace: str) -> str:
    """For a sentence: how many times as long one path of `bench peers` takes as another, p50."""
    p50 = {
        row["path"]: row["p50"]
        for row in result("bench-peers")["rows"]
        if row["payload"][0] == payload and row["pace"].replace(" ", "") == pace
    }
    return f"{p50[path] / p50[over]:.1f}"


def chunks(model: str, robots: str, over: str = "") -> str:
    """Chunks a second with so many robots; over: how many times as many as with so many."""
    rate = {
        str(row["robots"]): 1e3 * row["robots"] / row["p50_ms"]
        for row in result("bench-gpu")["rows"]
        if row["model"] == model and row["stage"] == "whole chunk"
    }
    return f"{rate[robots] / rate[over]:.1f}" if over else f"{rate[robots]:.0f}"


TABLES: Mapping[str, Callable[[], str]] = {
    "loop": of("bench-loop", loop),
    "lateness": of("bench-loop", lateness),
    "peers": of("bench-peers", peers),
    "wire": of("bench-wire", wire),
    "stream": of("bench-stream", stream),
    "reaction": of("bench-reaction", reaction),
    "robots": of("robots", robots),
    "batches": of("robots", batches),
    "cameras": lambda: cameras(*(result(f"bench-cameras-{rate}") for rate in (100, 250, 500))),
    "whole-body": of("bench-whole-body", whole_body),
    "moving-base": of("bench-moving-base", moving_base),
    "import": of("bench-import", start_up),
    "gpu": gpu,
}
