"""Checks a request part's numbers against chunks of H rows: which cannot work, and which moves most."""

from robot_runtime.core.method.request_parts import (
    BeforePlanEnds,
    Continuous,
    FixedExecutionHorizon,
    PlainObservation,
    RequestPart,
    RolledForwardState,
    Synchronous,
    When,
)
from robot_runtime.errors import InvalidValueError


def max_in_flight(part: RequestPart) -> int:
    """m: the largest number of open requests."""
    match part:
        case Synchronous():
            return 1
    match part.when:
        case FixedExecutionHorizon(max_in_flight=most):
            return most
    return 1


def rows_to_run(part: RequestPart, horizon: int) -> int:
    """n: the number of rows of a chunk that may enter the plan."""
    match part:
        case Synchronous(execution_horizon=int(rows)):
            return rows
        case Synchronous():
            return horizon
    match part.when:
        case BeforePlanEnds(execution_horizon=int(rows)):
            return rows
    return horizon


def moves_more_from_rest(
    part: RequestPart,
    *,
    num_rows: int,
    inference_delay: int,
    shown_delay: int,
    coast_rows: int,
    to_motion_rows: int = 0,
) -> bool:
    """Whether a robot is in motion for more of the time if it asks only at rest.

    Asked in motion, every c rows, an answer has lost its first d rows when it comes:

        capture 0         d          c + d                  in motion min(c, n - 1 - d) of c rows
                |---------|###########|......|##########

    Asked at rest, all n rows run, then the robot is stationary for the d rows that the next answer takes:

                0        n - 1   coast         d            in motion n - 1 of n - 1 + coast + d rows
                |##########|-------|..............|####

    num_rows: n, rows of a chunk that are run. inference_delay: d, rows an answer takes, as measured.
    shown_delay: rows by which a state is rolled forward; row 0 is due that much later.
    to_motion_rows: rows of d from a command to the motion, in which the next request may go out.
    """
    n, d = num_rows, inference_delay
    match part:
        case Synchronous():
            return False
        case RolledForwardState():
            last = n - 1 + min(d, shown_delay)
        case _:
            last = n - 1
    match part.when:
        case FixedExecutionHorizon(rows=rows):
            cycle = rows
        case Continuous():
            cycle = 1
        case BeforePlanEnds(overlap_rows=int(overlap)):
            cycle = n - overlap
        case BeforePlanEnds(margin_rows=margin):
            cycle = last - d - margin
    cycle = max(1, cycle, -(-(d - to_motion_rows) // max_in_flight(part)))
    in_motion = max(0, min(cycle, last - d)) / cycle
    from_rest = (n - 1) / (n - 1 + coast_rows + d)
    return n > 1 and in_motion < from_rest


def refuse_misfit(part: RequestPart, *, horizon: int, max_delay: int | None, most_in_flight: int) -> None:
    """Raise InvalidValueError if the part's own numbers cannot work with a chunk of `horizon` rows."""
    n = rows_to_run(part, horizon)
    _refuse_outside("execution horizon", n, 1, horizon, "the rows of a chunk")
    if isinstance(part, Synchronous):
        return
    match part.when:
        case FixedExecutionHorizon(rows=s, rows_from_measured=rarer, max_in_flight=most):
            _refuse_outside("execution horizon", s, 1, horizon, "the rows of a chunk")
            if rarer is not None:
                _refuse_outside("execution horizon while d < 2", rarer, s, horizon, "the rows of a chunk")
            _refuse_outside("max_in_flight", most, 1, most_in_flight, "what a server takes from one robot")
        case Continuous():
            s = 1
        case BeforePlanEnds(overlap_rows=int(overlap)):
            _refuse_outside("overlap", overlap, 1, n, "the rows that are run")
            s = n - overlap
        case BeforePlanEnds(margin_rows=margin):
            _refuse_outside("margin", margin, 0, n - 1, "the rows that are run, less one")
            s = 1
    d = None if isinstance(part, PlainObservation) else part.inference_delay
    if d is None:
        return
    is_rolled = isinstance(part, RolledForwardState)
    longest, why = (
        (horizon, "the rows of a chunk") if is_rolled else (horizon - 1, "the rows of a chunk, less one")
    )
    if max_delay is not None and max_delay < longest:
        longest, why = max_delay, "what the policy was trained for"
    _refuse_outside("inference delay", d, 0, longest, why)
    if is_rolled:
        _refuse_uncovered_start(part.when, s, d, n)
        return
    m = max_in_flight(part)
    least, name = max(s, -(-d // m)), "d" if m == 1 else f"d / {m}"
    if least + d > n - 1:
        raise InvalidValueError(
            f"a chunk of H = {n} rows cannot cover an execution horizon of s = max({s}, {name}) = {least} "
            f"rows and an inference delay of d = {d}: its last row is due H - 1 rows after the capture, so "
            f"s + d <= H - 1 is needed, and {least + d} > {n - 1}"
        )


def _refuse_uncovered_start(when: When, s: int, d: int, n: int) -> None:
    """Refuse rows that leave a gap: a state rolled forward has row 0 due d rows after its capture.

    capture          d        s                    s + d
       |-- older plan --|------- rows 0 ... s - 1 -----|       EveryRows: the next one starts here, s <= n
       |-- older plan --|-- 0 .. n-o --|-- o rows -----|       an overlap: captured at row n - o, d <= o
    """
    match when:
        case BeforePlanEnds(overlap_rows=int(overlap)):
            if d > overlap:
                raise InvalidValueError(
                    f"with an overlap of o = {overlap} rows the plan ends {overlap} rows after the capture, "
                    f"and the answer starts d = {d} rows after it: d <= o is needed, and {d} > {overlap}"
                )
        case _ if max(s, d) > n:
            raise InvalidValueError(
                f"a chunk of H = {n} rows cannot cover an execution horizon of s = max({s}, d) = "
                f"{max(s, d)} rows: s <= H is needed, and {max(s, d)} > {n}"
            )


def _refuse_outside(name: str, value: int, least: int, most: int, why: str) -> None:
    if not least <= value <= most:
        raise InvalidValueError(f"{name} must lie in {least}..{most}, {why}; got {value}")
