"""The base of cameras that a `Feed` reads: images of one size, fitted."""

from drivers.cameras.feed import Feed
from drivers.cameras.fit import Fit, Size, refuse_other_size
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError


class FittedCamera:
    """A camera with the newest image of a feed, fitted."""

    def __init__(self, feed: Feed, fit: Fit, source: Size) -> None:
        """source: (height, width) of the feed's images. InvalidValueError: they do not fit; the feed is
        closed then.
        """
        self._feed, self._fit, self._source = feed, fit, source
        try:
            self._size = fit.opened(feed.what, source)
        except InvalidValueError:
            feed.close()
            raise

    @property
    def size(self) -> Size:
        """(height, width) of the fitted images [pixels]."""
        return self._size

    def read(self) -> Image:
        """Wait for the next image. DriverError: the feed has ended, failed or been closed."""
        shot = self._feed.read()
        refuse_other_size(shot.pixels, self._source)
        return Image(t_ns=shot.t_ns, pixels=self._fit(shot.pixels))

    def close(self) -> None:
        self._feed.close()
