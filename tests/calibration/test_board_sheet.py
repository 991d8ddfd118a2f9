"""A board's sheet shows that board, to scale."""

import re
from dataclasses import replace

import numpy as np
import pytest

from calibration.board_sheet import BOARDS, PAPERS, RULER_MM, Sheet, pdf_of, picture_of
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


@pytest.mark.parametrize("paper", BOARDS)
def test_a_pdf_has_the_papers_size_and_squares_of_the_boards_size(paper):
    board, (width_mm, height_mm) = BOARDS[paper], PAPERS[paper]
    pdf = pdf_of(Sheet(board=board, paper=paper)).decode("latin-1")
    box = re.search(r"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", pdf).groups()
    page_pt = np.array([width_mm, height_mm]) * 72.0 / 25.4
    np.testing.assert_allclose(np.array(box, dtype=float), page_pt, atol=1e-3)
    assert "/PrintScaling /None" in pdf
    scales = np.array(re.findall(r"^([\d.]+) 0 0 ([\d.]+) 0 0 cm", pdf, re.MULTILINE), dtype=float)
    drawn_pt = np.array(re.findall(r"([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+) re", pdf), dtype=float)
    drawn_mm = drawn_pt * np.tile(scales.prod(axis=0), 2) * 25.4 / 72.0
    side_mm = 1e3 * board.square_m
    squares = drawn_mm[np.abs(drawn_mm[:, 2:] - side_mm).max(axis=1) < 1e-3]
    assert len(squares) == board.columns * board.rows // 2 + 1
    across_mm = np.ptp(squares[:, :2], axis=0) + side_mm
    np.testing.assert_allclose(across_mm, 1e3 * np.array(board.size_m), atol=1e-3)
    assert (np.abs(drawn_mm[:, 2] - RULER_MM) < 1e-3).sum() == 1


def test_a_pdf_fills_overlapping_strokes_of_the_ruler_and_names_the_board():
    pdf = pdf_of(Sheet(board=BOARDS["a4"], paper="a4")).decode("latin-1")
    assert re.search(r" re\s+f\s", pdf)  # by the non-zero rule: even-odd would leave holes
    assert "9 columns x 7 rows   square 24 mm   marker 16.8 mm   DICT_5X5_100   not legacy" in pdf


def test_a_board_that_does_not_fit_says_what_would():
    with pytest.raises(InvalidValueError, match="squares of 26 mm fit"):
        Sheet(board=replace(BOARDS["a4"], square_m=0.04), paper="a4")
