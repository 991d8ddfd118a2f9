"""Shape annotations, `Float[np.ndarray, "H D"]`, without their cost on a robot.

jaxtyping checks them, only under pytest, which has imported it by then. It imports asyncio, email and
unittest, a fifth of this package's import time; elsewhere the annotation is a plain array with its axes as
metadata.
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
