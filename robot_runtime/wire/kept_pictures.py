"""What a server keeps of one robot's pictures for a policy that looks back: `KeptPictures`.

request 1   shows pictures of 0 1 2     all sent
request 2   shows pictures of 1 2 3     3 sent, 1 and 2 named: they are those of request 1
request 3   shows pictures of 4 5 6     all sent; what request 2 has shown is forgotten
"""

from collections.abc import Sequence

from msgspec.structs import replace

from robot_runtime.wire.arrays import Picture


class KeptPictures:
    """The pictures of the newest request, as they came, by camera and capture time."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Picture] = {}

    @property
    def num_bytes(self) -> int:
        """Memory that they hold."""
        return sum(len(picture.buffer) for picture in self._kept.values())

    def resolved(self, pictures: Sequence[Picture]) -> tuple[Picture, ...]:
        """Each with what it stands for: of this request, or of the one before. One that is not there any more
        stays as it came: `is_missing`."""
        known, out = dict(self._kept), []
        for picture in pictures:
            if picture.encoding != "kept":
                known[picture.key] = picture
            elif (found := known.get(picture.key)) is not None and found.shape == picture.shape:
                picture = replace(found, frame=picture.frame)
            out.append(picture)
        return tuple(out)

    def keep(self, pictures: Sequence[Picture]) -> None:
        """Of a request that was taken: the next one may name these."""
        self._kept = {picture.key: picture for picture in pictures}

    def forget(self) -> None:
        """There is no room for them."""
        self._kept = {}


def is_missing(picture: Picture) -> bool:
    """Whether nobody knows what it stands for."""
    return picture.encoding == "kept"
