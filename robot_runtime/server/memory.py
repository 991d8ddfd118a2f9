"""Memory allocator settings of a server that receives megabytes many times a second."""

import ctypes
import logging
import sys

logger = logging.getLogger(__name__)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MIB = 1024 * 1024


def keep_freed_memory() -> None:
    """Make malloc reuse large blocks instead of returning them to the system; for the whole process.

    The transport takes a fresh block for every image. Returned to the system each time, a 0.9 MB block costs
    225 page faults when it is filled again, more than the socket costs. Only glibc has the setting.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        logger.info("this C library has no mallopt: large messages cost page faults")
        return
    mallopt(_M_MMAP_THRESHOLD, 32 * _MIB)
    mallopt(_M_TRIM_THRESHOLD, 256 * _MIB)
