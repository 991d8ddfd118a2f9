"""Tables of `docs/results/robustness.md` and `faults.md`: what was broken, and what the limits change."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scripts.tables.shared import NOTHING, of, result, share, table

Rows = Sequence[Mapping[str, Any]]


def faults(rows: Rows) -> str:
    """Return the table of faults: what is injected, what is to happen, and whether it did."""
    lines = [
        [
            str(row["number"]),
            row["fault"],
            row["how"],
            row["behaviour"],
            str(row["injections"]),
            _verdict(row),
        ]
        for row in rows
    ]
    return table(["#", "fault", "injected by", "what happens", "n", "verdict"], lines)


def _verdict(row: Mapping[str, str]) -> str:
    return f"{row['verdict']}: {row['missing']}" if row["missing"] else row["verdict"]


def figures_of_faults(rows: Rows) -> str:
    """Return every figure of every row, and what it may be."""
    lines, before = [], ""
    for row in rows:
        for each in row["figures"]:
            name = f"{each['name']} [{each['unit']}]" if each["unit"] else each["name"]
            number = str(row["number"])
            values = [
                NOTHING if value is None else f"{value:.3g}" for value in (each["median"], each["worst"])
            ]
            most = NOTHING if each["most"] is None else f"{each['most']:g}"
            lines.append(["" if number == before else number, name, *values, most, str(each["n"])])
            before = number
    return table(["#", "figure", "median", "worst", "at most", "n"], lines)


def surprises(rows: Rows) -> str:
    """Return what happened that no row defines."""
    found = [f"- row {row['number']}: {text}" for row in rows for text in dict.fromkeys(row["surprises"])]
    return "\n".join(found) or "None."


def franka(found: Mapping[str, Any]) -> str:
    """The Franka driver as a whole, beside our own simulation of the same seeds."""
    lines = [["a sine of 0.15 rad at 0.25 Hz, 20 targets a second: largest error after 1 s [rad]", "", ""]]
    lines[0][1] = f"{found['sine_error_max_rad']:.4f}"
    for name, what in (("franky_sim", "on franky-sim"), ("own_simulation", "in our own simulation")):
        low, high = (100 * each for each in found[name]["interval"])
        n, successes = found[name]["n"], found[name]["successes"]
        lines.append(
            [
                f"`pick_place` by the shipped policy, {what} [%]",
                f"{100 * successes / n:.0f}",
                f"{low:.0f}–{high:.0f}",
            ]
        )
    return table(["figure", "value", "95 % interval"], lines)


def gate(found: Mapping[str, Any]) -> str:
    """Absurd plans, stalls and stops through the limits."""
    robots = found["robots"]
    beyond = ("position", "velocity", "acceleration", "jerk")
    lines = [
        [
            name,
            f"{counted['ticks']:,}",
            str(counted["not_finite"]),
            " / ".join(str(counted[limit]) for limit in beyond),
            f"{counted['restless']} of {counted['stops']}",
            str(counted["raised"]),
        ]
        for name, counted in robots.items()
    ]
    head = [
        "part",
        "ticks",
        "not finite",
        "beyond position / speed / acceleration / jerk",
        "not at rest after a stop",
        "errors",
    ]
    return table(head, lines)


def sessions() -> str:
    found = result("fuzz")
    names = ("delivered", "dropped", "duplicated", "truncated", "restarts", "answered", "rows", "wrong rows")
    return table(names, [[f"{found[name]:,}" for name in names]])


def limits() -> str:
    """The shipped policies before commands were held to jerk, and since."""
    lines = []
    for row in sorted(result("gate")["rows"], key=lambda row: row["name"]):
        task, policy, _, delay = row["name"].split(", ")
        before, after = row["before"], row["after"]
        kind = " (vision)" if policy.startswith("seeing") else ""
        lines.append(
            [
                f"`{task}`{kind}",
                delay,
                *(
                    f"{share(s['success'], s['success_interval_95'])}, n = {s['episodes']}"
                    for s in (before, after)
                ),
                _change(before, after, "jerk_mean", 0),
                _change(before, after, "jerk_max", 0),
                _change(before, after, "completion_s", 1),
            ]
        )
    head = ["policy", "delay", "before", "with jerk limits", "mean jerk [rad/s³]", "greatest", "done [s]"]
    return table(head, lines)


def late_parts(found: Mapping[str, Any]) -> str:
    """What declared latencies are worth."""
    lines = []
    for row in found["rows"]:
        done, off = row.get("completion_s_median"), row.get("error_mean_m")
        lines.append(
            [
                f"`{row['task']}`",
                row["case"],
                share(row["success"], row["success_interval_95"]),
                NOTHING if done is None else f"{done:.1f}",
                NOTHING if off is None else f"{1e3 * off:.1f} / {1e3 * row['error_p95_m']:.0f}",
                f"{row['jerk_mean']:.0f}",
            ]
        )
    head = ["task", "latency", "success", "done [s]", "error mean / p95 [mm]", "mean jerk [rad/s³]"]
    return table(head, lines)


def _change(before: Mapping[str, float], after: Mapping[str, float], name: str, digits: int) -> str:
    if name not in before or name not in after:
        return NOTHING
    return f"{before[name]:.{digits}f} → {after[name]:.{digits}f}"


TABLES: Mapping[str, Callable[[], str]] = {
    "faults": of("bench-faults", lambda found: faults(found["rows"])),
    "faults-figures": of("bench-faults", lambda found: figures_of_faults(found["rows"])),
    "faults-surprises": of("bench-faults", lambda found: surprises(found["rows"])),
    "fuzz-gate": of("fuzz-gate", gate),
    "fuzz-sessions": sessions,
    "limits": limits,
    "late-parts": of("bench-part-latency", late_parts),
    "franka": of("bench-franka", franka),
}
