"""What a browser shows of a `PageState`: `view_of` returns plain values that become JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from robot_runtime.core.safety import Cause
from robot_runtime.page.chunks import Chunk
from robot_runtime.page.state import PageState, Spans

QUIET_S = 1.0
"""After this long without messages, the page warns that what it shows is old."""
_LIMITS = ("position", "velocity", "not_finite")
"""Limits that hold a part back; acceleration and jerk limits only round corners off."""
_LINES = 60


def view_of(
    state: PageState, *, quiet_s: float | None, player: dict[str, Any] | None = None, note: str = ""
) -> dict[str, Any]:
    """
    quiet_s: time since the newest message; None: none has arrived.
    player: position in a recorded run; None: it is live.
    note: a sentence on top of the page.
    """
    is_over = state.end is not None
    is_live = player is None and not is_over and quiet_s is not None and quiet_s < QUIET_S
    info = state.info
    banner = note or end_words(state)
    if not banner and player is None and state.num_messages and not is_live and quiet_s is not None:
        banner = f"No news from the robot for {quiet_s:.0f} s: what is shown is old."
    return {
        "is_live": is_live,
        "is_over": is_over,
        "t_s": round(state.t_s, 3),
        "mode": state.mode,
        "cause": state.cause if state.mode else "no news from the robot yet",
        "is_armed": is_armed(state),
        "task": state.task,
        "robot": "" if info is None else info.robot,
        "who": "" if info is None else who_of(state) + (" · recorded" if player else ""),
        "banner": banner,
        "figures": figures_of(state),
        "cameras": [
            {"name": name, "age_s": round(max(0.0, state.t_s - t_s), 2)}
            for name, (t_s, _) in sorted(state.pictures.items())
        ],
        "parts": parts_of(state),
        "chunks": [chunk_of(each) for each in state.chunks.by_request.values()],
        "modes": pairs_of(state.modes),
        "authority": [
            {"part": part, "spans": pairs_of(spans)} for part, spans in sorted(state.authority.items())
        ],
        "lines": [
            {"n": each.n, "t_s": round(each.t_s, 1), "text": each.text, "is_loud": each.is_loud}
            for each in list(state.lines)[-_LINES:]
        ],
        "orders": [
            {
                "n": each.n,
                "text": each.text,
                "by": each.by,
                "refused": each.refused,
                "after_ms": round(each.after_s * 1e3),
            }
            for each in list(state.orders)[-3:]
        ],
        "num_stops": state.num_stops,
        "player": player,
    }


def end_words(state: PageState) -> str:
    """The result of the run in words; empty while it goes on."""
    if (end := state.end) is None:
        return ""
    judged = {"True": "success", "False": "no success"}.get(end.get("success", ""), state.episode)
    came_to = end.get("error") or end.get("fault") or judged or state.cause or "it did not move"
    files = end.get("files") or ()
    return f"The run is over: {came_to}" + (f", log {', '.join(files)}" if files else "")


def is_armed(state: PageState) -> bool | None:
    """Whether rows may run; None: a stopped robot has to be reset first, or the mode is unknown."""
    match state.mode:
        case "RUN":
            return True
        case "HOLD":
            return state.cause != Cause.NOT_ARMED.value
    return None


def who_of(state: PageState) -> str:
    """Robot and policy in one line."""
    assert state.info is not None
    return f"{state.info.robot} · policy {state.info.policy.name}"


def figures_of(state: PageState) -> list[tuple[str, str]]:
    """Names and values of the run's figures."""
    out: list[tuple[str, str]] = []
    if state.chunks.latencies_ms:
        half, most = quantile(state.chunks.latencies_ms, 0.5), quantile(state.chunks.latencies_ms, 0.95)
        out.append(("latency p50 / p95", f"{half:.0f} / {most:.0f} ms"))
    if state.age_ms is not None:
        out.append(("acts on what is", f"{state.age_ms:.0f} ms old"))
    recent = [t_s for t_s in state.chunks.came_s if t_s > state.t_s - 5.0]
    if len(recent) > 1:
        out.append(("chunks", f"{(len(recent) - 1) / (recent[-1] - recent[0]):.1f} /s"))
    if state.late_ms:
        late = quantile([ms for _, ms in state.late_ms], 0.99)
        skipped = f", {state.num_skipped} skipped" if state.num_skipped else ""
        out.append(("ticks late p99", f"{late:.2f} ms{skipped}"))
    if state.clips:
        clipped = sum(any(map(held_back, each.values())) for _, each in state.clips) / len(state.clips)
        out.append(("held back by limits", f"{100 * clipped:.0f} %"))
    if state.episode:
        out.append(("episode", state.episode))
    return out


def parts_of(state: PageState) -> list[dict[str, str]]:
    """Each moving part of the robot: its authority, its phase, and the limits that hold it back."""
    names = [] if state.info is None else list(state.info.schema.parts)
    newest = state.clips[-1][1] if state.clips else {}
    out = []
    for name in names:
        spans = state.authority.get(name)
        short = newest.get(name) or {}
        out.append(
            {
                "name": name,
                "authority": spans.pairs[-1][1] if spans is not None and spans.pairs else "",
                "phase": state.phases.get(name, "NONE"),
                "clipped": held_back(short),
            }
        )
    return out


def held_back(short: Mapping[str, Any]) -> str:
    """Which limit holds a part back, in words; empty: none does."""
    if short.get("not_finite"):
        return "braked: its target is not finite"
    return next((f"{kind} limit" for kind in _LIMITS if short.get(kind)), "")


def chunk_of(chunk: Chunk) -> dict[str, Any]:
    """One bar of the strip."""
    return {
        "n": chunk.n,
        "asked_s": _rounded(chunk.asked_s),
        "came_s": _rounded(chunk.came_s),
        "first_s": _rounded(chunk.first_s),
        "end_s": _rounded(chunk.first_s if chunk.end_s is None else chunk.end_s),
        "planned_s": _rounded(chunk.last_s) if chunk.state != "done" else None,
        "state": chunk.state,
        "why": chunk.why,
    }


def pairs_of(spans: Spans) -> list[tuple[float, str]]:
    """Start and value of each span."""
    return [(round(t_s, 3), value) for t_s, value in spans.pairs]


def quantile(values: Sequence[float] | Any, share: float) -> float:
    """Quantile of a few numbers."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
