"""Tables of `docs/results/robustness.md`: what was broken on purpose, and what the limits change."""

from collections.abc import Callable, Mapping

from tables import NOTHING, result, share, table


def faults() -> str:
    """A server killed with -9 while the robot moves."""
    rounds = result("bench-faults")["rounds"]
    lines = []
    for name in rounds[0]:
        values = sorted(each[name] for each in rounds)
        lines.append([name, f"{values[len(values) // 2]:.1f}", f"{values[-1]:.1f}", str(len(values))])
    return table(["what", "median", "worst", "n"], lines)


def gate() -> str:
    """Absurd plans, stalls and stops through the limits."""
    robots = result("fuzz-gate")["robots"]
    beyond = ("position", "velocity", "acceleration", "jerk")
    lines = [
        [
            name,
            f"{found['ticks']:,}",
            str(found["not_finite"]),
            " / ".join(str(found[limit]) for limit in beyond),
            f"{found['restless']} of {found['stops']}",
            str(found["raised"]),
        ]
        for name, found in robots.items()
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


def _change(before: Mapping[str, float], after: Mapping[str, float], name: str, digits: int) -> str:
    if name not in before or name not in after:
        return NOTHING
    return f"{before[name]:.{digits}f} → {after[name]:.{digits}f}"


TABLES: Mapping[str, Callable[[], str]] = {
    "faults": faults,
    "fuzz-gate": gate,
    "fuzz-sessions": sessions,
    "limits": limits,
}
