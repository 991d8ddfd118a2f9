"""A peer as those of `scripts.lab.baselines`: peer.py TIME_NS ANYTHING. Its server does nothing, for ever."""

import json
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection


def serve(pipe: Connection) -> None:
    pipe.send("ready")
    time.sleep(3600)


def main(time_ns: int) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(theirs,), daemon=True).start()
    ours.recv()
    for line in sys.stdin:
        sys.stdout.write(json.dumps([time_ns] * int(line.split()[0])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
