"""A board's sheet shows that board, to scale."""

import re
from dataclasses import replace

import numpy as np
import pytest

from calibration.board_sheet import BOARDS, PAPERS, Sheet, pdf_of, picture_of
from calibration.detection import detect
from robot_runtime.errors import InvalidValueError


@pytest.mark.parametrize("paper", BOARDS)
def test_every_corner_of_a_sheet_is_found_at_its_place(paper):
    sheet = Sheet(board=BOARDS[paper], paper=paper)
    corners = detect(sheet.board, picture_of(sheet, dots_per_inch=100))
    assert len(corners) == sheet.board.num_corners
    apart = (corners.uv - corners.uv[0]) * 0.0254 / 100  # m
    off = apart - (sheet.board.corners_B - sheet.board.corners_B[0])[:, :2]
    assert np.abs(off).max() < 3e-4  # a dot is 2.5e-4


@pytest.mark.parametrize("is_legacy", [False, True])
def test_the_drawing_is_opencvs(is_legacy):
    board = replace(BOARDS["a4"], rows=6, marker_m=0.018, legacy=is_legacy)
    sheet = Sheet(board=board, paper="a4")
    whole = picture_of(sheet, dots_per_inch=254)[..., 0]  # 240 dots a square
    left, top = (round(10 * each) for each in sheet._corner_mm)
    drawn = whole[top : top + 6 * 240, left : left + 9 * 240]
    assert (drawn != board.picture(240)).mean() < 6e-3  # edges of cells fall between dots


def test_odd_by_odd_boards_have_one_layout():
    for board in BOARDS.values():
        assert (board.picture(40) == replace(board, legacy=True).picture(40)).all()


def test_a_pdf_is_to_scale_and_says_what_the_board_is():
    sheet = Sheet(board=BOARDS["a4"], paper="a4")
    pdf = pdf_of(sheet).decode("latin-1")
    box = [float(each) for each in re.search(r"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf).groups()]
    np.testing.assert_allclose(np.array(box) / 72 * 25.4, PAPERS["a4"], atol=1e-3)  # mm
    assert pdf.count("24.0000 24.0000 re") == 32  # black squares of 24 mm
    assert "9 columns x 7 rows   square 24 mm   marker 16.8 mm   DICT_5X5_100   not legacy" in pdf


def test_a_board_that_does_not_fit_says_what_would():
    with pytest.raises(InvalidValueError, match="squares of 26 mm fit"):
        Sheet(board=replace(BOARDS["a4"], square_m=0.04), paper="a4")
