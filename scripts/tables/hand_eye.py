"""The table of `docs/calibration_robot.md`: how exactly a camera's place on or beside an arm is found."""

from collections.abc import Callable, Mapping

from scripts.tables.shared import result, table

_WORDS = {"hand-eye": "camera on the arm", "robot-world": "camera beside it"}


def hand_eye() -> str:
    """Against the truth, by setup, noise and number of views."""
    lines = [
        [
            _WORDS[row["setup"]],
            row["case"],
            str(row["views"]),
            f"{row['median_mm']:.2f} / {row['p95_mm']:.2f}",
            f"{row['median_deg']:.3f} / {row['p95_deg']:.3f}",
            f"{row['nees']:.2f}",
            f"{row['usable']} of {row['seeds']}",
        ]
        for row in result("hand_eye")["rows"]
    ]
    head = [
        "setup",
        "pictures",
        "views",
        "off [mm], median / p95",
        "off [°], median / p95",
        "NEES / 6",
        "usable",
    ]
    return table(head, lines)


TABLES: Mapping[str, Callable[[], str]] = {"hand_eye": hand_eye}
