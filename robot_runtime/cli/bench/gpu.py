"""`robot-runtime bench gpu`: SmolVLA and pi0.5 at full size by stages, against LeRobot and the floor."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from rich.table import Table

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import Batch, Count, Maybe, OutputFile, Some, Within
from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import keep_text, result_json

if TYPE_CHECKING:
    from policies.lerobot.timing import Peak

ModelName = Literal["smolvla", "pi0", "pi05"]


@dataclass(frozen=True, kw_only=True)
class BenchGpu:
    """Measure a VLA's stages with random weights: image encoder, prefill, step, whole chunk, first row out.

    LeRobot's own `predict_action_chunk` runs on the same weights in the same run, before they are compiled.
    """

    models: Some[ModelName] = ("smolvla", "pi05")
    """Models of LeRobot to measure."""
    batches: Some[Batch] = (1, 2, 4, 6, 8, 16)
    """Numbers of robots that are answered together."""
    cameras: Annotated[int, Within(1, 16)] = 2
    """Pictures that each robot sends."""
    small: bool = False
    """Take two narrow layers instead, to try the command where no GPU is at hand."""
    device: str = "cuda"
    """Where to compute, in torch's words: cuda, or cpu for the small models."""
    dtype: Maybe[Literal["bfloat16", "float32"]] = None
    """Number format of the weights; if not given bfloat16, but float32 on a CPU without instructions for
    it."""
    compile: bool = True
    """Have torch compile what ours runs, for each size of batch."""
    n: Count = 30
    """How often each stage is measured."""
    json: Maybe[OutputFile] = None
    """Write the figures to this file, as JSON."""

    def main(self) -> int:
        """Measure, print a table, and write the figures if asked; returns the exit code."""
        import torch

        from policies.load import check_device

        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise InvalidValueError(
                "torch finds no GPU here; `--small --device cpu` tries the command without"
            )
        check_device(self.device)
        device = torch.device(self.device)
        dtype = self._dtype(device.type)
        figures = [row for model in self.models for row in self._measured(model, dtype)]
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        show(figures, title=f"{name}, {dtype}, {self.cameras} cameras, p50 [ms]")
        if self.json is not None:
            written = {"device": name, "dtype": dtype, "rows": figures}
            keep_text(self.json, result_json(written))
        return 0

    def _dtype(self, device_type: str) -> str:
        from policies.flow.train import multiplies_bfloat16

        return self.dtype or ("float32" if device_type == "cpu" and not multiplies_bfloat16() else "bfloat16")

    def _measured(self, model: ModelName, dtype: str) -> list[dict[str, Any]]:
        import torch

        from policies.lerobot.flow import LeRobotFlow
        from policies.lerobot.random import random_policy
        from policies.lerobot.timing import LEROBOT, floor, lerobots_times, peak_of, stage_times

        policy = random_policy(
            model, is_small=self.small, num_cameras=self.cameras, device=self.device, dtype=dtype
        )
        peak = peak_of(torch.device(self.device), getattr(torch, dtype))
        with counted() as progress:
            bar = progress.add_task(model, total=2 * len(self.batches))
            theirs = {}
            for size in self.batches:
                theirs[size] = lerobots_times(policy, size, n=self.n)
                progress.update(bar, advance=1, description=f"{model}: LeRobot's own, {size} robots")
            network = LeRobotFlow(
                policy,
                lambda rows: rows,
                horizon=policy.config.chunk_size,
                dim=policy.config.max_action_dim,
                is_compiled=self.compile,
            )
            rows = []
            for size in self.batches:
                times = stage_times(policy, network, size, n=self.n) | {LEROBOT: theirs[size]}
                rows += _rows(model, size, times, floor(policy, size, peak), peak)
                progress.update(bar, advance=1, description=f"{model}: ours, {size} robots")
        return rows


def _rows(
    model: str, size: int, times: dict[str, list[float]], floors: dict[str, float], peak: "Peak"
) -> list[dict[str, Any]]:
    out = []
    at_best = f"{peak.operations_per_s / 1e12:.3g} Tops/s, {peak.bytes_per_s / 1e12:.3g} TB/s"
    for stage, taken in times.items():
        p50, p95, p99 = 1e3 * np.percentile(taken, [50, 95, 99])
        out.append(
            {
                "model": model,
                "robots": size,
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
    for column in ("model", "robots", "stage", "p50", "p99", "floor", "p50 / floor", "chunks/s"):
        table.add_column(column, justify="left" if column in ("model", "stage") else "right")
    for row in figures:
        is_chunk = row["stage"] in ("whole chunk", "LeRobot's predict_action_chunk")
        table.add_row(
            row["model"],
            str(row["robots"]),
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
