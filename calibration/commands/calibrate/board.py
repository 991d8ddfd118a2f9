"""`robot-runtime calibrate board`: makes a board to print, and records its printed size."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from robot_runtime.cli.options import InputFile, Maybe, OutputFolder, Parsed, Within, need
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import keep

if TYPE_CHECKING:
    from calibration.board import Board
    from calibration.board_sheet import Sheet

PAPERS = ("a4", "a3", "letter", "tabloid")


def _paper_of(text: str) -> str:
    if text.lower() not in PAPERS:
        raise InvalidValueError(f"takes a paper that boards are drawn for, {', '.join(PAPERS)}; got {text}")
    return text.lower()


Paper = Annotated[str, Parsed(_paper_of), arg(metavar="{" + ",".join(PAPERS) + "}")]
Squares = Annotated[int, Within(3, 50)]
Millimetres = Annotated[float, Within(0, 2000, is_above=True)]


@dataclass(frozen=True, kw_only=True)
class CalibrateBoard:
    """Make a ChArUco board to print.

    Writes board.json, a PDF to print at 100 %, and a PNG to look at. Then measure the printed ruler with a
    calliper, and write its length into board.json with the second example.

    Examples: robot-runtime calibrate board --paper a3 --output board;
    robot-runtime calibrate board --board board/board.json --measured-mm 98.1 --of 100
    """

    output: OutputFolder = Path("board")
    """Folder for board.json, board.pdf and board.png."""
    paper: Paper = "a4"
    """Paper of the printer, landscape, which also sets the default board. a4 (210 x 297 mm) and letter
    (8.5 x 11 in), 9 x 7 squares of 24 mm: for intrinsics, and at short range. a3 (297 x 420 mm), 7 x 5 of
    50 mm, and tabloid (11 x 17 in), 7 x 5 of 45 mm: for anchors."""
    columns: Maybe[Squares] = None
    """Squares in a row; a number that suits the paper if no size of the board is given."""
    rows: Maybe[Squares] = None
    """Squares in a column; an odd number, for which old and new layouts are the same."""
    square_mm: Maybe[Millimetres] = None
    """Side of a square."""
    marker_mm: Maybe[Millimetres] = None
    """Side of a marker; 0.7 of a square if not given."""
    dictionary: Maybe[str] = None
    """Dictionary of the markers, such as 5X5_100: OpenCV's names without DICT_."""
    legacy: bool = False
    """Use the layout before OpenCV 4.6, for a board that is printed already."""
    board: Maybe[InputFile] = None
    """Existing board.json to which the measured print is written. The PDF is not made again."""
    measured_mm: Maybe[Millimetres] = None
    """Length of the printed ruler, or of several squares, measured with a calliper [mm]."""
    of: Millimetres = 100.0
    """Nominal value of that length [mm]."""

    def main(self) -> int:
        need("scipy", "cv2", "reportlab", extras=("calibration",))
        from dataclasses import replace

        from calibration.board import Board
        from calibration.board_sheet import BOARDS, Sheet
        from calibration.store import load, save

        if self.board is not None:
            if self.measured_mm is None:
                raise InvalidValueError("--board is for --measured-mm: what does the ruler measure?")
            return _measured(self.board, load(self.board, Board), self.measured_mm, self.of)
        if self.measured_mm is not None:
            raise InvalidValueError("--measured-mm is of a board that was printed: --board its board.json")
        paper = self.paper.lower()
        board = BOARDS[paper]
        square_m = board.square_m if self.square_mm is None else self.square_mm / 1e3
        board = replace(
            board,
            columns=self.columns or board.columns,
            rows=self.rows or board.rows,
            square_m=square_m,
            marker_m=0.7 * square_m if self.marker_mm is None else self.marker_mm / 1e3,
            dictionary=(self.dictionary or board.dictionary).removeprefix("DICT_"),
            legacy=self.legacy,
        )
        sheet = Sheet(board=board, paper=paper)
        file = self.output / "board.json"
        _refuse_measured(file)
        print(f"{board}, on {paper}")
        _write(sheet, self.output)
        print(f"{file}: board, sha256 {save(file, board)[:12]}")
        if board.rows % 2 == 0:
            print("note: an even number of rows has two layouts (--legacy); odd by odd has one")
        print(
            "next: print board.pdf at 100 % (no fit to page), glue it to something flat, measure the ruler:"
        )
        print(f"      robot-runtime calibrate board --board {file} --measured-mm ... --of 100")
        return 0


def _refuse_measured(file: Path) -> None:
    """Raise InvalidValueError if the file holds a board with a measured print, on which other files
    depend."""
    from calibration.board import Board
    from calibration.store import load

    try:
        there = load(file, Board)
    except InvalidValueError:
        return  # it does not exist, or cannot be read
    if there.print_scale != 1.0:
        raise InvalidValueError(
            f"{file} is of a board whose print was measured ({100 * there.print_scale:.2f} %): another one "
            "goes into another folder (--output)"
        )


def _write(sheet: "Sheet", folder: Path) -> None:
    import cv2

    from calibration.board_sheet import pdf_of, picture_of

    picture = cv2.imencode(".png", picture_of(sheet)[..., ::-1])[1].tobytes()
    files = {"board.pdf": pdf_of(sheet), "board.png": picture}  # both, before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        keep(folder / name, lambda path, content=content: path.write_bytes(content))  # type: ignore[misc]
    print(f"{folder / 'board.pdf'}, {folder / 'board.png'}")


def _measured(file: Path, board: "Board", measured_mm: float, of_mm: float) -> int:
    from calibration.store import save

    found = board.measured(measured_mm / 1e3, of_mm / 1e3)
    digest = save(file, found)
    print(f"{file}: printed at {100 * found.print_scale:.2f} %: {found}, sha256 {digest[:12]}")
    if abs(found.print_scale - 1.0) > 0.005:
        print(
            "note: files that were calibrated with the old board.json are wrong by as much; make them again"
        )
    return 0
