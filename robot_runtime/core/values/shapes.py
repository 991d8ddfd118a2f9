"""Shapes in annotations, `Float[np.ndarray, "H D"]`, without paying for them on a robot.

jaxtyping checks them, and only under pytest, which has imported it by then. It brings asyncio, email and
unittest along, a fifth of the time that importing this package takes; elsewhere the annotation is of a plain
array, with its axes beside it.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Float, Int, UInt8
else:

    class _Unchecked:
        def __class_getitem__(cls, item: tuple[type, Any]) -> Any:
            return Annotated[np.ndarray, str(item[1])]

    Float = Int = UInt8 = _Unchecked

__all__ = ["Float", "Int", "UInt8"]
