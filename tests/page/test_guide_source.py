"""What the page of a live calibration keeps of what its command tells: the newest, its picture, its end."""

import json

import msgspec
import numpy as np
import simplejpeg

from robot_runtime.page.guide import Guide, Mark, Message
from robot_runtime.page.guide_page import jpeg_of
from robot_runtime.page.guide_source import GuideSource

GUIDE = Guide(title="calibrate", do="tilt it", num_taken=3, marks=(Mark(name="left", is_there=True),))
RAMP = np.broadcast_to(np.arange(64, dtype=np.uint8)[None, :, None] * 4, (48, 64, 3))


def told() -> GuideSource:
    source = GuideSource()
    source.take(msgspec.json.encode(Message(guide=GUIDE, jpeg=jpeg_of(RAMP))))
    return source


def test_news_without_a_picture_leave_the_one_before():
    source = told()
    before = dict(source.pictures())
    source.take(msgspec.json.encode(Message(guide=Guide(title="calibrate", do="move it"))))
    assert source.pictures() == before
    assert json.loads(source.view())["do"] == "move it"
    source.take(msgspec.json.encode(Message(guide=GUIDE, jpeg=jpeg_of(RAMP))))
    assert source.pictures()["camera"].number != before["camera"].number


def test_a_command_that_is_gone_without_a_word_is_said_to_have_ended():
    source = told()
    assert json.loads(source.view())["end"] is None
    source.end()
    assert "has ended without a result" in json.loads(source.view())["end"]["text"]


def test_a_picture_that_is_wide_is_shown_smaller_and_as_it_was():
    wide = np.repeat(np.repeat(RAMP, 40, axis=0), 40, axis=1)  # 2560 wide
    small = simplejpeg.decode_jpeg(jpeg_of(wide))
    assert small.shape == (960, 1280, 3)
    assert np.abs(small[::20, ::20].astype(int) - RAMP).mean() < 3.0
