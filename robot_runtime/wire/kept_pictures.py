"""The images of one robot that a server keeps for a policy that looks back: `KeptPictures`.

request 1   has images of 0 1 2     all sent
request 2   has images of 1 2 3     3 sent, 1 and 2 named: they are those of request 1
request 3   has images of 4 5 6     all sent; those of request 2 are dropped
"""

from collections.abc import Sequence

from msgspec.structs import replace

from robot_runtime.wire.arrays import Picture


class KeptPictures:
    """The encoded images of the newest request, by camera and capture time."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Picture] = {}

    @property
    def num_bytes(self) -> int:
        """The memory that they take [bytes]."""
        return sum(len(picture.buffer) for picture in self._kept.values())

    def resolved(self, pictures: Sequence[Picture]) -> tuple[Picture, ...]:
        """Return each image with its content, from this request or the previous one. One that is no longer
        here stays unresolved: `is_missing`."""
        known, out = dict(self._kept), []
        for picture in pictures:
            if picture.encoding != "kept":
                known[picture.key] = picture
            elif (found := known.get(picture.key)) is not None and found.shape == picture.shape:
                picture = replace(found, frame=picture.frame)
            out.append(picture)
        return tuple(out)

    def keep(self, pictures: Sequence[Picture]) -> None:
        """Keep the images of an accepted request: the next one may name them."""
        self._kept = {picture.key: picture for picture in pictures}

    def forget(self) -> None:
        """Drop all: there is no room for them."""
        self._kept = {}


def is_missing(picture: Picture) -> bool:
    """Whether its content is not here."""
    return picture.encoding == "kept"
