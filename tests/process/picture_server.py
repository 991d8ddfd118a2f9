"""A camera in the network: JPEG pictures of a still scene with a sensor's noise, by HTTP (multipart)."""

import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import simplejpeg

SIZE = (48, 64)


def noise(seed: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """Red on the left, noise all over, (h, w, 3) uint8."""
    pixels = np.random.default_rng(seed).integers(0, 80, (*size, 3), dtype=np.uint8)
    pixels[:, : size[1] // 2, 0] += 150
    return pixels


def jpeg(pixels: np.ndarray) -> bytes:
    return simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), 95, colorsubsampling="444")


def as_it_is(pixels: np.ndarray, last: np.ndarray) -> bytes:
    return jpeg(pixels)


class PictureServer:
    """Sends a picture each period to whoever asks; `spoil` says what becomes of it on its way."""

    def __init__(self, *, hz: float = 30.0) -> None:
        self.spoil: Callable[[np.ndarray, np.ndarray], bytes | None] = as_it_is
        """This picture and the last good one -> what is sent; None: nothing."""
        self.is_over = threading.Event()
        self.faulty_ns = 0
        """When the first spoilt picture was due, since `spoil` was set."""
        self._period_s, self._hz = 1.0 / hz, hz
        self._count = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=picture")
                self.end_headers()
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    server._send(self.wfile.write)
                except OSError:  # the reader has gone
                    return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/"

    def __enter__(self) -> "PictureServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def well(self) -> None:
        """From now on all pictures are good."""
        self.spoil, self.faulty_ns = as_it_is, 0

    def _send(self, write: Callable[[bytes], object]) -> None:
        due_s, last = time.monotonic(), noise(0)
        while not self.is_over.is_set():
            due_s += self._period_s
            time.sleep(max(0.0, due_s - time.monotonic()))
            self._count += 1
            pixels, spoil = noise(self._count), self.spoil
            body = spoil(pixels, last)
            if spoil is as_it_is:
                last = pixels
            elif not self.faulty_ns:
                self.faulty_ns = time.monotonic_ns()
            if body is not None:
                head = f"--picture\r\nContent-Type: image/jpeg\r\nContent-Length: {len(body)}\r\n\r\n"
                write(head.encode() + body + b"\r\n")
