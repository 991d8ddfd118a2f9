"""What went into an executor, fed to another one, gives the same commands to the last bit."""

import numpy as np
import pinocchio as pin
import pytest

from robot_runtime.core.journal import Asked, Began, Foreign, PartCame, Ticked
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.state import RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.forms import FormError, Forms
from robot_runtime.log.replay import replay
from tests.log.robots import KINDS, Life

RUNS = [(method, kind) for i, method in enumerate(METHODS) for kind in [list(KINDS)[i % 3]]]
"""Every method, on one of the robots."""


def through_a_file(entries):
    """As the log writes and reads them."""
    forms = Forms()
    return [forms.decode(forms.encode(entry)) for entry in entries]


def lives(method: str, kind: str) -> Life:
    return Life(
        kind if method != "a2c2" else "one arm",
        method,
        seed=len(method) + len(kind),
        is_armed_by_hand=len(method) % 2 == 0,
    )


@pytest.mark.parametrize(("method", "kind"), RUNS)
def test_every_method_with_streams_losses_faults_and_people_replays_to_the_same_bits(method, kind):
    life = lives(method, kind)
    entries = life.run(80)
    done = replay(through_a_file(entries))
    assert done.difference is None
    assert done.ticks == 80


def test_those_runs_have_seen_every_mode_and_every_kind_of_entry():
    life = Life("one arm", "time-aligned", seed=3)
    kinds = {type(entry) for entry in life.run(400)}
    assert life.modes == set(Mode)
    assert {kind.__name__ for kind in kinds} >= {
        "Began", "EpochSet", "WasReset", "Looked", "Asked", "AskedSoon", "PartCame", "RequestLost",
        "ServerLost", "Stopped", "Ticked", "TookOver", "Led", "HandedBack",
    }  # fmt: skip
    assert replay(through_a_file(life.entries)).difference is None


def test_one_bit_of_one_answer_is_found_where_it_first_matters():
    entries = Life("one arm", "time-aligned", seed=5).run(100)
    first = next(i for i, entry in enumerate(entries) if isinstance(entry, PartCame) and entry.splice)
    part = entries[first].part
    rows = part.rows.copy()
    rows[:, 0] = np.nextafter(rows[:, 0], 10.0)
    entries[first] = PartCame(type(part)(**{**fields_of(part), "rows": rows}), *rest_of(entries[first]))
    difference = replay(entries).difference
    assert difference is not None
    before = sum(isinstance(entry, Ticked) for entry in entries[:first])
    assert difference.tick >= before


def fields_of(part):
    return {name: getattr(part, name) for name in (getattr(part, "__struct_fields__", None) or vars(part))}


def rest_of(entry: PartCame):
    return entry.now_ns, entry.outcome, entry.splice


def test_values_come_back_to_the_last_bit_nan_and_infinity_too():
    forms, odd = Forms(), np.array([np.nan, np.inf, -0.0, 5e-324, 0.1])
    pose = pin.SE3.Random()
    state = RobotState(t_ns=-5, q=odd, dq=odd, X_BE=pose, measured={"force": odd}, t_newest_ns=3)
    back = forms.decode(forms.encode([state]))[0]
    assert back.q.tobytes() == odd.tobytes()
    assert back.measured["force"].tobytes() == odd.tobytes()
    assert back.X_BE.homogeneous.tobytes() == pose.homogeneous.tobytes()
    assert (back.t_ns, back.t_newest_ns) == (-5, 3)
    assert not back.q.flags.writeable


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_arrays_keep_kind_and_shape(dtype):
    forms, array = Forms(), np.arange(12).reshape(3, 4).astype(dtype)
    back = forms.decode(forms.encode(array.T))
    assert back.dtype == dtype
    assert np.array_equal(back, array.T)
    assert forms.decode(forms.encode(np.zeros((0, 4), dtype))).shape == (0, 4)


def test_bytes_that_are_no_value_of_ours_are_refused():
    forms = Forms()
    for data in (
        b"",
        b"\xc1",
        forms.encode({"": "os.system", "command": "rm"}),
        forms.encode({"": "Ticked"}),
    ):
        with pytest.raises(FormError):
            forms.decode(data)


def test_a_robot_with_functions_of_its_own_is_asked_for():
    entries = Life("one arm", "vlash", seed=1).run(20)
    own = entries[0].configuration
    functions = type(own)(**{**vars(own), "hand_pose": {"arm": lambda q: pin.SE3.Identity()}})
    logged = through_a_file([Began(functions), *entries[1:]])
    assert isinstance(logged[0].configuration.hand_pose["arm"], Foreign)
    with pytest.raises(InvalidValueError, match=r"hand_pose <function .*> .*--robot path/to/file.py:robot"):
        replay(logged)


def test_a_head_of_ones_own_is_asked_for_and_taken():
    class Mine:
        lead = 1

        def __init__(self, spec):
            self.action_spec = spec

        def correction(self, observation, chunk, k):
            return np.full(self.action_spec.dim, 1e-4)

    life = Life("one arm", "a2c2", seed=2)
    own = life.entries[0].configuration
    head = Mine(own.action_spec)
    life.entries[0] = Began(type(own)(**{**vars(own), "correction_head": head}))
    life.executor._corrector._head = head
    logged = through_a_file(life.run(80))
    with pytest.raises(InvalidValueError, match=r"--correction path/to/file.py:head"):
        replay(logged)
    assert replay(logged, correction_head=head).difference is None


def test_requests_are_compared_too():
    entries = Life("one arm", "committed-prefix", seed=6).run(60)
    at = next(i for i, entry in enumerate(entries) if isinstance(entry, Asked))
    request = entries[at].request
    changed = type(request)(**{**fields_of(request), "seed": request.seed + 1})
    entries[at] = Asked(entries[at].observation, changed)
    assert replay(entries).difference.what.startswith("Asked.seed: the log has")
