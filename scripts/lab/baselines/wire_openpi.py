"""Stock openpi-client against a server like openpi's, around an instant policy: round trips on request.

    wire_openpi.py HEIGHT WIDTH     for `python -m scripts.bench peers`, in an environment with openpi-client

Every line "n period_s" on the input is answered with the times of n round trips as JSON [ns], which begin no
closer than that period. Client and serialisation are openpi's. Its server is in no package
registry; its replacement here does the same: one asyncio loop, no compression, unpack, infer, pack, send.
"""

import asyncio
import json
import multiprocessing
import sys
import time

import numpy as np
from openpi_client import msgpack_numpy
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as listen

HORIZON, DIM = 50, 14


def serve(pipe) -> None:
    asyncio.run(_serve(pipe))


async def _serve(pipe) -> None:
    async def talk(connection: ServerConnection) -> None:
        packer, rows = msgpack_numpy.Packer(), np.ones((HORIZON, DIM), np.float32)
        await connection.send(packer.pack({}))
        async for message in connection:
            started_s = time.monotonic()
            msgpack_numpy.unpackb(message)
            timing = {"infer_ms": (time.monotonic() - started_s) * 1e3}
            await connection.send(packer.pack({"actions": rows, "server_timing": timing}))

    async with listen(talk, "127.0.0.1", 0, compression=None, max_size=None) as server:
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()


def main(height: int, width: int) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(theirs,), daemon=True).start()
    client = WebsocketClientPolicy("127.0.0.1", ours.recv())
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)
    observation = {
        "state": np.zeros(DIM, np.float32),
        "left": pixels,
        "right": pixels.copy(),
        "prompt": "measure",
    }
    for line in sys.stdin:
        num, period_s = line.split()
        times, next_s = [], time.monotonic()
        for _ in range(int(num)):
            next_s = max(next_s + float(period_s), time.monotonic())
            time.sleep(max(next_s - time.monotonic(), 0.0))
            started_ns = time.monotonic_ns()
            answer = client.infer(observation)
            times.append(time.monotonic_ns() - started_ns)
            assert answer["actions"].shape == (HORIZON, DIM)
        sys.stdout.write(f"{json.dumps(times)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
