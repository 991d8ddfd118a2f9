"""What a server's page shows: `status_of` returns plain values that become JSON."""

import sys
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from robot_runtime.server.server_metrics import Histogram, ServerMetrics

NS_PER_MS = 1_000_000


def status_of(metrics: Mapping[str, ServerMetrics]) -> dict[str, Any]:
    """metrics: by policy name."""
    return {"policies": [_policy(name, each) for name, each in metrics.items()], "gpus": gpus()}


def _policy(name: str, metrics: ServerMetrics) -> dict[str, Any]:
    return {
        "name": name,
        "is_ready": metrics.is_ready,
        "warm": {
            "samplers": list(metrics.warm),
            "max_batch": metrics.max_batch,
            "pieces_left": metrics.pieces_to_warm,
        },
        "waiting": metrics.waiting,
        "robots": [
            {
                "name": robot.name,
                "silent_ms": robot.silent_ns // NS_PER_MS,
                "num_answered": robot.num_answered,
                "requests": [
                    {
                        "waited_ms": request.waited_ns // NS_PER_MS,
                        "left_ms": request.left_ns // NS_PER_MS,
                        "is_running": request.is_running,
                    }
                    for request in robot.requests
                ],
            }
            for robot in metrics.robots
        ],
        "requests": dict(metrics.requests),
        "turned_away": dict(metrics.turned_away),
        "rows_sent": metrics.rows_sent,
        "rows_unwanted": metrics.rows_unwanted,
        "bytes_received": metrics.bytes_received,
        "bytes_sent": metrics.bytes_sent,
        "batch_sizes": _sizes(metrics.batch_size),
        "queue_ms": _quantiles(metrics.queue_s),
        "first_rows_ms": _quantiles(metrics.first_rows_s),
        "infer_ms": _quantiles(metrics.infer_s),
    }


def _sizes(histogram: Histogram) -> list[tuple[str, int]]:
    """Bounds, as texts, and how many batches fall into each."""
    return list(zip((*map(str, histogram.bounds), "more"), histogram.counts, strict=True))


def _quantiles(histogram: Histogram) -> dict[str, float] | None:
    """The bounds below which half and 95 % of the values lie [ms]; None: there are none."""
    total = sum(histogram.counts)
    if not total:
        return None
    bounds = [1e3 * bound for bound in (*histogram.bounds, histogram.bounds[-1])]
    below = list(accumulate(histogram.counts))
    at = {
        name: next(bound for bound, count in zip(bounds, below, strict=True) if count >= share * total)
        for name, share in (("p50", 0.5), ("p95", 0.95))
    }
    return {**at, "mean": 1e3 * histogram.sum / total}


def gpus() -> list[dict[str, Any]]:
    """Memory of each GPU that this process uses; none without one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    out = []
    for i in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(i)
        name = torch.cuda.get_device_name(i)
        out.append({"name": name, "used_bytes": total - free, "total_bytes": total})
    return out
