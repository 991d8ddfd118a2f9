"""A server's metrics over HTTP: `/metrics` for Prometheus, `/healthz` and `/readyz` for its supervisor."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from robot_runtime.errors import InvalidValueError
from robot_runtime.server.bounded_http import TIMEOUT_S, BoundedServer, HttpService
from robot_runtime.server.server_metrics import Histogram, ServerMetrics

_PREFIX = "robot_runtime_"


class MetricsServer(HttpService):
    """Answers from threads of its own; a context manager. Up before the policy is warm, and not ready
    then."""

    def __init__(self, address: str, metrics: Mapping[str, ServerMetrics]) -> None:
        """
        address: HOST:PORT, port 0 picks a free one. InvalidValueError: it cannot be listened on.
        metrics: by policy name; ready when all of them are.
        """
        registry = CollectorRegistry()
        registry.register(_MetricsCollector(metrics))
        host, _, port = address.rpartition(":")

        class Handler(_Handler):
            metrics = staticmethod(lambda: generate_latest(registry))
            is_ready = staticmethod(lambda: bool(metrics) and all(a.is_ready for a in metrics.values()))

        try:
            if not host:
                raise ValueError("no host")  # and not all interfaces by accident
            server = BoundedServer((host.strip("[]"), int(port)), Handler)
        except (OSError, ValueError, OverflowError) as error:
            raise InvalidValueError(
                f"cannot answer HTTP at {address!r}: {error}; expected HOST:PORT, e.g. 127.0.0.1:9090"
            ) from error
        name, number = server.server_address[:2]
        self.address = f"{name!s}:{number}"
        """Where it answers, with the port that was chosen."""
        super().__init__(server, "metrics")


class _Handler(BaseHTTPRequestHandler):
    timeout = TIMEOUT_S
    metrics: staticmethod
    is_ready: staticmethod

    def do_GET(self) -> None:
        match self.path:
            case "/metrics":
                self._answer(200, self.metrics(), "text/plain; version=0.0.4; charset=utf-8")
            case "/healthz":
                self._answer(200, b"alive\n")
            case "/readyz":
                is_ready = self.is_ready()
                self._answer(200 if is_ready else 503, b"ready\n" if is_ready else b"not ready\n")
            case _:
                self._answer(404, b"there are /metrics, /healthz and /readyz\n")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: no line per request."""

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _MetricsCollector(Collector):
    def __init__(self, metrics: Mapping[str, ServerMetrics]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        gauges = (
            ("clients", "Robots that have greeted.", lambda a: a.clients),
            ("waiting_requests", "Requests that no batch has taken yet.", lambda a: a.waiting),
            ("ready", "1 while requests are taken.", lambda a: int(a.is_ready)),
            ("max_batch", "Most requests that are answered together.", lambda a: a.max_batch),
            ("pieces_to_warm", "Pieces of warming up that are left.", lambda a: a.pieces_to_warm),
        )
        counters = (
            ("rows_sent", "Rows sent to robots.", lambda a: a.rows_sent),
            ("rows_unwanted", "Rows final when no robot wanted them any more.", lambda a: a.rows_unwanted),
            ("received_bytes", "Bytes received.", lambda a: a.bytes_received),
            ("sent_bytes", "Bytes sent.", lambda a: a.bytes_sent),
        )
        labelled = (
            ("requests", "Requests by how they ended.", "outcome", lambda a: a.requests),
            ("ignored_packets", "Packets that changed nothing.", "cause", lambda a: a.ignored),
            ("turned_away", "Connections that failed or were cut.", "cause", lambda a: a.turned_away),
        )
        histograms = (
            ("batch_size", "Requests answered together.", lambda a: a.batch_size),
            ("queue_seconds", "From receipt of a request to inference.", lambda a: a.queue_s),
            ("first_rows_seconds", "From the start of inference to first rows.", lambda a: a.first_rows_s),
            ("inference_seconds", "Inference of a batch.", lambda a: a.infer_s),
        )
        for name, meaning, value in gauges:
            yield self._family(GaugeMetricFamily(_PREFIX + name, meaning, labels=["policy"]), value)
        for name, meaning, value in counters:
            yield self._family(CounterMetricFamily(_PREFIX + name, meaning, labels=["policy"]), value)
        for name, meaning, label, values in labelled:
            family = CounterMetricFamily(_PREFIX + name, meaning, labels=["policy", label])
            for policy, metrics in self._metrics.items():
                for key, count in dict(values(metrics)).items():
                    family.add_metric([policy, key], count)
            yield family
        for name, meaning, histogram in histograms:
            yield self._histogram(name, meaning, histogram)

    def _family[F: (GaugeMetricFamily, CounterMetricFamily)](
        self, family: F, value: Callable[[ServerMetrics], float]
    ) -> F:
        for policy, metrics in self._metrics.items():
            family.add_metric([policy], value(metrics))
        return family

    def _histogram(self, name: str, meaning: str, value: Callable[[ServerMetrics], Histogram]) -> Metric:
        family = HistogramMetricFamily(_PREFIX + name, meaning, labels=["policy"])
        for policy, metrics in self._metrics.items():
            histogram = value(metrics)
            bounds = [*map(str, histogram.bounds), "+Inf"]
            sums = itertools.accumulate(histogram.counts)
            family.add_metric([policy], list(zip(bounds, sums, strict=True)), histogram.sum)
        return family
