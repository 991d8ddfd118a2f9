"""`python -m scripts.bench gpu`: SmolVLA and pi0.5 at full size by stages, against LeRobot and the floor;
with `--serve` through server and wire, against the policy alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from rich.table import Table
from tyro.conf import arg

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import AnyCount, Batch, Count, Maybe, OutputFile, Some, Within
from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError
from scripts.bench.gpu_served import served_figures, show_served, two_starts
from scripts.bench.gpu_server import Served
from scripts.harness import write_result

if TYPE_CHECKING:
    from policies.lerobot.timing import Peak

MOST_OF_THEIRS = 10
"""Of LeRobot's own chunks, which take ten times as long."""
ModelName = Literal["smolvla", "pi0", "pi05"]


@dataclass(frozen=True, kw_only=True)
class BenchGpu:
    """Measure a VLA's stages with random weights: image encoder, prefill, step, whole chunk, first row.

    LeRobot's own `predict_action_chunk` runs on the same weights in the same run, before they are compiled.
    """

    models: Some[ModelName] = ("smolvla", "pi05")
    """Models of LeRobot to measure."""
    batches: Some[Batch] = (1, 2, 4, 6, 8, 16)
    """Batch sizes: numbers of robots that are answered together."""
    cameras: Some[Annotated[int, Within(1, 16)]] = (2,)
    """Numbers of images that each robot sends."""
    words: Some[Annotated[int, Within(1, 1024)]] = (20,)
    """Tokens of the prompt; ours rounds them up to 64, or the model's longest."""
    small: bool = False
    """Use two narrow layers instead, to test the command without a GPU."""
    device: str = "cuda"
    """Torch device: cuda, or cpu for the small models."""
    dtype: Maybe[Literal["bfloat16", "float32"]] = None
    """Number format of the weights; if not given bfloat16, but float32 on a CPU without instructions for
    it."""
    compile: Annotated[bool, arg(help="Do not have torch compile what ours runs, for each batch.")] = True
    one_graph: bool = False
    """Run a chunk as one CUDA graph from images to rows, without timing its parts. A CPU also runs it as a
    whole, without a graph."""
    n: Count = 30
    """How often each stage is measured."""
    serve: bool = False
    """Measure chunks of one robot through server and wire instead of stages, beside the policy alone."""
    connections: AnyCount = 100
    """With --serve: number of robots that then connect, ask once and leave, to measure the server's
    memory."""
    starts: bool = False
    """With --serve: start the server twice, first without compiled code on the disk, with the batch sizes of
    --batches, and measure how long until it is open, and until all is warm."""
    json: Maybe[OutputFile] = None
    """Write the figures to this file, as JSON."""

    def main(self) -> int:
        """Measure, print a table, and write the figures if asked; returns the exit code."""
        found = self.measured()
        if self.serve:
            show_served(found["served"])
        else:
            show(found["rows"], title=f"{found['device']}, {found['dtype']}, p50 [ms]")
            show_chunks(found["chunks"])
        if self.json is not None:
            write_result(self.json, found)
        return 0

    def measured(self) -> dict[str, Any]:
        """The device, stages, and what chunks are made of; InvalidValueError: there is no such device."""
        import torch

        from policies.lerobot.timing import device_facts
        from policies.load import check_device

        if self.starts and not self.serve:
            raise InvalidValueError("--starts is for --serve")
        if self.device.startswith("cuda") and self.one_graph and not self.compile:
            raise InvalidValueError("--one-graph records what is compiled: leave --no-compile out")
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise InvalidValueError(
                "torch finds no GPU here; `--small --device cpu` tries the command without"
            )
        check_device(self.device)
        device = torch.device(self.device)
        dtype = self._dtype(device.type)
        facts = device_facts(device)
        figures, chunks, served = [], [], []
        for model in self.models:
            for cameras in self.cameras:
                if self.serve:
                    served += self._served(model, cameras, dtype)
                    continue
                rows, adding_up = self._measured(model, cameras, dtype)
                figures += rows
                chunks += adding_up
        return {
            "device": facts["name"],
            "device_before": facts,
            "device_after": device_facts(device),  # clocks differ under load
            "dtype": dtype,
            "rows": figures,
            "chunks": chunks,
            "served": served,
        }

    def _served(self, model: ModelName, cameras: int, dtype: str) -> list[dict[str, Any]]:
        """Each length of a prompt through a server of its own."""
        of: dict[str, Any] = {
            "small": self.small,
            "device": self.device,
            "dtype": dtype,
            "compile": self.compile,
            "one_graph": self.one_graph,
            "max_batch": max(self.batches) if self.starts else 1,
        }
        measure = two_starts if self.starts else served_figures
        out = []
        for words in self.words:
            setting = Served(model=model, cameras=cameras, words=words, **of)
            out.append(measure(setting, n=self.n, connections=self.connections))
        return out

    def _dtype(self, device_type: str) -> str:
        from policies.flow.train import multiplies_bfloat16

        return self.dtype or ("float32" if device_type == "cpu" and not multiplies_bfloat16() else "bfloat16")

    def _measured(
        self, model: ModelName, cameras: int, dtype: str
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Stages, and what each setting's parts add up to."""
        import torch

        from policies.lerobot import timing
        from policies.lerobot.flow import LeRobotFlow
        from policies.lerobot.random import random_policy

        policy = random_policy(
            model, is_small=self.small, num_cameras=cameras, device=self.device, dtype=dtype
        )
        words = tuple(w for w in self.words if w <= policy.config.tokenizer_max_length)
        if not words:
            longest = policy.config.tokenizer_max_length
            raise InvalidValueError(
                f"a prompt of {model} has at most {longest} tokens, got --words {self.words}"
            )
        peak = timing.peak_of(torch.device(self.device), getattr(torch, dtype))
        with counted() as progress:
            settings = [(size, num) for num in words for size in self.batches]
            bar = progress.add_task(model, total=2 * len(settings))
            theirs = {}
            for size, num in settings:
                theirs[size, num] = timing.lerobots_times(
                    policy, size, n=min(self.n, MOST_OF_THEIRS), num_words=num
                )
                progress.update(bar, advance=1, description=f"{model}: LeRobot's own, {size} robots")
            network = LeRobotFlow(
                policy,
                lambda rows: rows,
                horizon=policy.config.chunk_size,
                dim=policy.config.max_action_dim,
                is_compiled=self.compile,
                is_whole=self.one_graph,
            )
            rows, chunks = [], []
            for size, num in settings:
                setting = {"model": model, "cameras": cameras, "words": num, "robots": size}
                setting |= {"one_graph": self.one_graph}
                ready_s = timing.seconds_to_warm(policy, network, size, num_words=num)
                times = timing.stage_times(policy, network, size, n=self.n, num_words=num)
                kernels = timing.kernels_of_chunk(policy, network, size, num_words=num)
                whole = float(np.median(times[timing.WHOLE]))
                chunk: dict[str, Any] = {"ready_s": ready_s}
                if timing.STEP in times:
                    chunk["parts_over_whole"] = timing.parts_over_whole(times, network.num_steps)
                if kernels is not None:
                    chunk |= {"kernels": kernels.num, "host_share": 1.0 - kernels.seconds / whole}
                chunks.append(setting | chunk)
                times |= {timing.LEROBOT: theirs[size, num]}
                rows += _rows(setting, times, timing.floor(policy, size, peak, num_words=num), peak)
                progress.update(bar, advance=1, description=f"{model}: ours, {size} robots")
        return rows, chunks


def _rows(
    setting: dict[str, Any], times: dict[str, list[float]], floors: dict[str, float], peak: "Peak"
) -> list[dict[str, Any]]:
    out = []
    at_best = f"{peak.operations_per_s / 1e12:.3g} Tops/s, {peak.bytes_per_s / 1e12:.3g} TB/s"
    for stage, taken in times.items():
        p50, p95, p99 = 1e3 * np.percentile(taken, [50, 95, 99])
        out.append(
            {
                **setting,
                "stage": stage,
                "n": len(taken),
                "p50_ms": float(p50),
                "p95_ms": float(p95),
                "p99_ms": float(p99),
                "floor_ms": 1e3 * floors[stage],
                "peak": f"{at_best} ({peak.source})",
            }
        )
    return out


def show(figures: list[dict[str, Any]], *, title: str) -> None:
    """Print every stage beside its floor, and chunks a second."""
    table = Table(title=title)
    for column in (
        "model",
        "cameras",
        "words",
        "robots",
        "stage",
        "p50",
        "p99",
        "floor",
        "p50 / floor",
        "chunks/s",
    ):
        table.add_column(column, justify="left" if column in ("model", "stage") else "right")
    for row in figures:
        is_chunk = row["stage"] in ("whole chunk", "LeRobot's predict_action_chunk")
        table.add_row(
            row["model"],
            *(str(row[name]) for name in ("cameras", "words", "robots")),
            row["stage"],
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
            f"{row['floor_ms']:.3f}",
            f"{row['p50_ms'] / row['floor_ms']:.1f}",
            f"{1e3 * row['robots'] / row['p50_ms']:.1f}" if is_chunk else "",
        )
    console = plain_console()
    console.print(table)
    console.print(
        "floor: max(2 x weights x tokens / peak, bytes of weights and cache / bandwidth) of each stage"
    )
    for peak in dict.fromkeys(row["peak"] for row in figures):
        console.print(f"peak: {peak}")


def show_chunks(chunks: list[dict[str, Any]]) -> None:
    """Print how long torch took until the first chunks of a kind were out, what of a chunk its parts add up
    to, its kernels, and the share that the device waited."""
    table = Table(title="what a chunk is made of")
    columns = "model", "cameras", "words", "robots", "ready [s]", "parts / whole", "kernels", "host's share"
    for column in columns:
        table.add_column(column, justify="left" if column == "model" else "right")
    for chunk in chunks:
        table.add_row(
            *(str(chunk[name]) for name in ("model", "cameras", "words", "robots")),
            f"{chunk['ready_s']:.1f}",
            f"{chunk['parts_over_whole']:.3f}" if "parts_over_whole" in chunk else "–",
            str(chunk.get("kernels", "–")),
            f"{chunk['host_share']:.0%}" if "host_share" in chunk else "–",
        )
    plain_console().print(table)
