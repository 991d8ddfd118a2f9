"""How LeRobot is set up for our chunks; needs no LeRobot."""

import pytest

from robot_runtime.errors import InvalidValueError
from scripts.lab.baselines.lerobot_rtc import run_peer_episode
from scripts.lab.baselines.lerobot_settings import LeRobotSettings, Variant, settings_of


def test_the_default_threshold_is_the_same_share_of_a_shorter_chunk():
    assert settings_of(Variant.DEFAULTS, horizon=50, num_steps=5, expected_delay_rows=0) == LeRobotSettings()
    scaled = settings_of(Variant.DEFAULTS, horizon=32, num_steps=5, expected_delay_rows=8)
    assert scaled == LeRobotSettings(queue_threshold=19)
    given = settings_of(Variant.AS_GIVEN, horizon=32, num_steps=5, expected_delay_rows=8)
    assert given == LeRobotSettings()


@pytest.mark.parametrize("variant", [Variant.BEST_WIDE, Variant.BEST_NARROW, Variant.INTERPOLATED])
@pytest.mark.parametrize("d", range(15))
def test_the_best_settings_guide_the_seam_at_every_delay_that_leaves_room(d, variant):
    best = settings_of(variant, horizon=32, num_steps=5, expected_delay_rows=d)
    s = max(4, d)
    assert best.queue_threshold == 32 - s
    assert d < best.execution_horizon <= 32 - s


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(InvalidValueError, match="cannot work"):
        LeRobotSettings(execution_horizon=0)


def test_a_delay_that_varies_needs_a_word_on_what_to_expect():
    with pytest.raises(InvalidValueError, match="needs expected_delay_ns"):
        run_peer_episode(
            "track", task_name="track", variant=Variant.BEST_WIDE, seed=0, delay_ns=lambda t_ns: t_ns % 7
        )
