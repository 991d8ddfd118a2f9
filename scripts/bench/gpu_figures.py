"""Measures all figures of VLAs on a GPU in one call, the most important first, within a time limit.

python -m scripts.bench.gpu_figures --json figures.json              # 8 minutes on an H100
python -m scripts.bench.gpu_figures --small --device cpu --limit-s 60   # tries it without a GPU

Each setting is what `scripts.bench gpu` measures; none is begun that might not end in time. At last the
first setting is measured again in a new process, which finds what torch has compiled on the disk: how long a
server takes to be ready the second time. The JSON is written after every setting.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_runtime.cli.options import Count, KeptFile, Maybe, Seconds
from scripts.bench.gpu import BenchGpu, ModelName, show, show_chunks
from scripts.bench.gpu_served import show_served
from scripts.harness import run_script, write_result

LIMIT_S = 480.0
"""Eight minutes."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One measurement: a model with a number of images, for a number of robots."""

    model: ModelName
    cameras: int = 2
    robots: int = 1
    words: int = 20
    serve: bool = False
    """Through server and wire, beside the policy alone."""
    one_graph: bool = False
    """The whole chunk recorded as one graph, in its own process."""

    def bench(self, args: "Options", *, n: int) -> BenchGpu:
        return BenchGpu(
            models=(self.model,), cameras=(self.cameras,), batches=(self.robots,), words=(self.words,),
            small=args.small, device=args.device, compile=not args.small, n=n, serve=self.serve,
            one_graph=self.one_graph,
        )  # fmt: skip


SETTINGS = (
    Setting(model="pi05"),
    Setting(model="smolvla"),
    Setting(model="pi05", one_graph=True),
    Setting(model="pi05", robots=6),
    Setting(model="smolvla", one_graph=True),
    Setting(model="pi05", serve=True),
    Setting(model="pi05", cameras=3),
    Setting(model="pi0"),
    Setting(model="smolvla", robots=6),
    Setting(model="pi05", words=100),
    Setting(model="pi05", robots=2),
)
"""The most important first, as the last ones are left out when time runs out."""


def measure(
    settings: Sequence[Setting], args: "Options", now_s: Callable[[], float] = time.monotonic
) -> dict[str, Any]:
    """Figures of as many settings as fit; the limit counts from here."""
    started_s, longest_s = now_s(), 0.0
    found: dict[str, Any] = {"rows": [], "chunks": [], "served": [], "left_out": [], "failed": []}

    def has_time() -> bool:
        return now_s() - started_s + longest_s < args.limit_s

    for setting in settings:
        if not has_time():
            found["left_out"].append(vars(setting))
            continue
        began_s = now_s()
        try:
            # A GPU that fails to record a graph may be of no use to its process afterwards.
            apart = setting.one_graph
            one = (
                measured_apart(setting, args, n=args.n) if apart else setting.bench(args, n=args.n).measured()
            )
        except subprocess.CalledProcessError:
            found["failed"].append(vars(setting))
            continue
        longest_s = max(longest_s, now_s() - began_s)
        for kind in ("rows", "chunks", "served"):
            found[kind] += one.pop(kind)
        found |= one
        _keep(found, args)
    if found["chunks"] and has_time():
        found["ready_second_time_s"] = second_time(settings[0], args)
        _keep(found, args)
    return found


def second_time(setting: Setting, args: "Options") -> float:
    """Seconds until a setting is ready in a process that finds what was compiled on the disk."""
    (chunk,) = measured_apart(setting, args, n=1)["chunks"]
    return float(chunk["ready_s"])


def measured_apart(setting: Setting, args: "Options", *, n: int) -> dict[str, Any]:
    """What `Setting.bench` measures, in a process of its own; CalledProcessError: it failed there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        line = [
            sys.executable, "-m", "scripts.bench", "gpu", "--models", setting.model,
            "--cameras", str(setting.cameras), "--batches", str(setting.robots), "--words",
            str(setting.words), "--n", str(n), "--device", args.device, "--json", str(path),
            *(("--small", "--no-compile") if args.small else ()),
            *(("--one-graph",) if setting.one_graph else ()),
        ]  # fmt: skip
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def _keep(found: dict[str, Any], args: "Options") -> None:
    if args.json is not None:
        write_result(args.json, found)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure the figures of VLAs on a GPU."""

    device: str = "cuda"
    small: bool = False
    """Use two narrow layers, not compiled."""
    n: Count = 30
    """Chunks of each setting."""
    limit_s: Seconds = LIMIT_S
    json: Maybe[KeptFile] = None
    """File for the figures."""


def main(options: Options) -> int:
    found = measure(SETTINGS, options)
    show(found["rows"], title=f"{found.get('device')}, {found.get('dtype')}, p50 [ms]")
    show_chunks(found["chunks"])
    show_served(found["served"])
    print(f"ready the second time: {found.get('ready_second_time_s', 'not measured')} s")
    for why, settings in (("left out for want of time", found["left_out"]), ("failed", found["failed"])):
        for setting in settings:
            print(f"{why}: {setting}")
    return 0


if __name__ == "__main__":
    run_script(Options, main, description=__doc__)
