"""What a teleoperator may say: values that are whole, finite and nobody's to write to."""

import numpy as np
import pytest

from robot_runtime.core.teleop import BaseLead, GripperLead, JointLead, Lead
from robot_runtime.errors import InvalidValueError


def test_a_lead_keeps_its_own_numbers():
    q = np.zeros(3)
    lead = Lead(t_ns=5, parts={"arm": JointLead(q=q)}, engaged={"arm": True})
    q[0] = 1.0
    assert lead.parts["arm"].q[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        lead.parts["arm"].q[0] = 1.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: JointLead(q=np.array([0.0, np.nan])), r"q of a JointLead is finite numbers \(N,\)"),
        (lambda: BaseLead(V_WB_B=np.full(3, np.inf)), "V_WB_B of a BaseLead is 3 finite numbers"),
        (lambda: GripperLead(), "an opening or a speed, got opening=None, speed=None"),
        (lambda: GripperLead(opening=0.1, speed=0.2), "an opening or a speed"),
        (lambda: Lead(t_ns=0, parts={}, engaged={"arm": True}), "engaged, but not led: arm"),
    ],
)
def test_what_is_no_lead_is_refused_with_what_was_expected(make, words):
    with pytest.raises(InvalidValueError, match=words):
        make()
