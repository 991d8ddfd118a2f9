"""`robot-runtime serve`: serves policies on an address until Ctrl-C."""

import faulthandler
import gc
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from policies.commands.serve_gateways import check_gateways, gateways
from robot_runtime.cli.options import (
    SHIPPED,
    Batch,
    HeartbeatMs,
    HostPort,
    InputFile,
    InputFolder,
    Maybe,
    Milliseconds,
    OutputFile,
    OutputFolder,
    OwnAddress,
    PageAddress,
    Processes,
    RowError,
    Seed,
    Several,
    Some,
    Within,
)
from robot_runtime.cli.progress import under_way
from robot_runtime.cli.signals import exit_code, own_handler
from robot_runtime.core.policy import Policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import ARM
from robot_runtime.error_text import sentence
from robot_runtime.errors import InvalidValueError, PolicyError
from robot_runtime.keys import ServerKeys
from robot_runtime.load_object import is_factory, is_object, load_made
from robot_runtime.processes import torch_threads
from robot_runtime.results import keep_text
from robot_runtime.server.collector import Collector, keep_freed_memory
from robot_runtime.server.door import checked_policy
from robot_runtime.server.server import HEARTBEAT_NS, MAX_BATCH, PolicyServer
from robot_runtime.server.server_metrics import ServerMetrics
from robot_runtime.server.service import Delay
from robot_runtime.server.warming import OPEN_NS
from robot_runtime.signals import Ended
from robot_runtime.transport.address import DEFAULT_ADDRESS, host_and_port
from robot_runtime.user_code import forget

if TYPE_CHECKING:
    from robot_runtime.server.metrics_http import MetricsServer
    from robot_runtime.server.status_http import StatusServer

logger = logging.getLogger(__name__)
POLICIES = "robot_runtime.policies"
"""Group of the entry points of installed policies."""
PAGE = ("127.0.0.1", "8090")
"""Default address of the page."""
_SWITCH_INTERVAL_S = 0.0005
_POLICY = (
    "One or more policies: names of shipped or scripted ones, folders of trained ones, hf://OWNER/NAME, or "
    "your own, as my_policy.py:policy, package.module:object or an entry point of robot_runtime.policies. "
    "NAME=POLICY serves it under another name. "
    f"{SHIPPED}"
)


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Serve policies to robots.

    Loads the policies, warms them up, then answers requests; run it on the machine with the GPU. Ctrl-C ends
    the server at once, SIGTERM after the open requests, both within 2 s. SIGHUP reloads the policies: each
    new one replaces the old one once it is warm, and no request is lost.
    """

    policy: Annotated[Some[str], arg(help=_POLICY)]
    address: OwnAddress = DEFAULT_ADDRESS
    """Address to listen on: tcp://HOST:PORT or HOST:PORT. Port * selects a free port. Host * listens beyond
    this machine, which requires --keys or --open."""
    keys: Maybe[InputFolder] = None
    """The server's folder made by `robot-runtime keys`: only robots whose keys are in it are answered."""
    open: bool = False
    """Listen beyond this machine without keys: any client that reaches the address can use the policy."""
    delay_ms: Milliseconds = 0.0
    """Delay every answer by this time [ms], as a slow network would; the policy continues meanwhile."""
    delay_sigma: Annotated[float, Within(0, 10)] = 0.0
    """Spread of that delay: standard deviation of the logarithm of its lognormal factor."""
    delay_seed: Seed = 0
    """Seed of that spread."""
    heartbeat_ms: HeartbeatMs = HEARTBEAT_NS / 1e6
    """Period of the robots' heartbeat requests over a fast link [ms]."""
    max_batch: Batch = MAX_BATCH
    """Largest batch of requests that a policy with batching answers together; 1 answers one at a time."""
    warm_s: Annotated[float, Within(0, 86400)] = OPEN_NS / 1e9
    """How long to continue warming up once a robot could be answered [s]. Methods and batch sizes that are
    not warm by then are warmed up between requests, each with a line. A large value warms up all first."""
    device: str = "cpu"
    """Torch device of the networks: cpu, cuda, cuda:1."""
    dtype: Maybe[Literal["float32", "bfloat16"]] = None
    """Number format for the weights of LeRobot's SmolVLA, pi0, pi0.5 and X-VLA; that of the checkpoint if not
    given. The log reports how far rows then are from those in float32."""
    max_row_error: Maybe[RowError] = None
    """Largest deviation of the rows of LeRobot's SmolVLA, pi0 and pi0.5 from those in float32, as a share of
    their size; a policy that exceeds it is not served."""
    compile: bool = False
    """Compile LeRobot's SmolVLA, pi0 and pi0.5 with torch: for single requests before the server is ready,
    for every batch size after that."""
    one_graph: bool = False
    """With --compile: run each chunk as one graph from images to rows, which a GPU records as a CUDA
    graph."""
    compile_cache: Maybe[OutputFolder] = None
    """Folder in which to keep compiled code for the next start; if not given, TORCHINDUCTOR_CACHE_DIR, else
    ~/.cache/robot-runtime/compiled."""
    policy_host: Several[str] = ()
    """Other machines that a policy's folder (openpi.json) may send observations to."""
    joints: Several[str] = ()
    """For the policies hold and sine: the robot's joints, if they are not seven of "arm" and a gripper. A
    number, PART=NUMBER, or PART=NAME,NAME,...; one value for each part. Other parts hold their position."""
    torch_threads: Maybe[Processes] = None
    """Number of threads of torch; torch's default if not given. No effect on a policy without torch."""
    openpi: Maybe[HostPort] = None
    """HOST:PORT on which to answer openpi's clients too, over WebSocket: ws://HOST:PORT/NAME for the policy
    NAME, ws://HOST:PORT for the first one."""
    lerobot: Maybe[HostPort] = None
    """HOST:PORT on which to answer LeRobot's robot clients too, over gRPC; on this machine only, or with
    TLS."""
    lerobot_tls: Maybe[tuple[InputFile, InputFile]] = None
    """Certificate and private key for --lerobot, as PEM files."""
    groot: Maybe[HostPort] = None
    """HOST:PORT on which to answer GR00T's clients too, over ZeroMQ, with the first policy."""
    names: Maybe[InputFile] = None
    """JSON file that maps the entries of the other projects' observations to ours, with units; see
    docs/openpi_groot.md."""
    gateway_keys: Maybe[InputFolder] = None
    """With --keys: key folder of the robot whose identity the other projects' clients get."""
    token: Maybe[InputFile] = None
    """File with the api_key, or api_token, that openpi's and GR00T's clients must send."""
    metrics: Maybe[HostPort] = None
    """HOST:PORT on which to answer HTTP: /metrics for Prometheus, /healthz, /readyz."""
    page: PageAddress = None
    """Show connected robots, queues, batches, deadlines and latencies in a browser, at this address;
    127.0.0.1:8090 if the option has no value. Beyond this machine the page requires a token, which the
    printed address has."""
    json: Maybe[OutputFile] = None
    """Write address, process id and policies to this file once ready, as JSON."""

    def main(self) -> int:
        """Serve the policies of --policy; return the exit code."""
        how: dict[str, Any] = {
            "device": self.device,
            "dtype": self.dtype,
            "is_compiled": self.compile,
            "is_whole": self.one_graph,
            "max_row_error": self.max_row_error,
            "hosts": self.policy_host,
        }
        if self.compile:
            from policies.compiled import keep_compiled

            keep_compiled(self.compile_cache)
            faulthandler.enable(file=2)  # incomplete cached code crashes the process
        if self.joints:
            how["schema"] = joints_schema(self.joints)
        with _compiler_errors() if self.compile else nullcontext():
            code = serve([partial(_load, name, how) for name in self.policy], self)
        if code == exit_code(signal.SIGINT):
            raise Ended(signal.SIGINT)
        return code


@contextmanager
def _compiler_errors() -> Iterator[None]:
    """Turn errors of the compiler into a PolicyError of one sentence."""
    from policies.compiled import compiler_trouble

    try:
        yield
    except Exception as error:
        if (message := compiler_trouble(error)) is None:
            raise
        raise PolicyError(message) from error


def _load(source: str, how: dict[str, Any]) -> Policy:
    """Load a user's own object, or a policy that `load_policy` knows; rename it if the source is
    NAME=SOURCE."""
    given, name = split_name(source)
    loaded = _load_one(name, how)
    return _renamed(loaded, given) if given else loaded


def split_name(source: str) -> tuple[str, str]:
    """Split a value of --policy into the name that it gives, empty if none, and the policy's source."""
    given, found, rest = source.partition("=")
    return (given, rest) if found and given and not Path(source).exists() else ("", source)


def distinct_names(names: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Return distinct names of policies; clashing ones get the nearest parent folders that differ.

    names: the policies' own names. sources: the values of --policy. InvalidValueError: nothing differs.
    """
    out = list(names)
    for name in {name for name in names if names.count(name) > 1}:
        alike = [i for i, other in enumerate(names) if other == name]
        tails = [Path(split_name(sources[i])[1]).absolute().parts[::-1] for i in alike]
        depths = range(1, 1 + min(map(len, tails)))
        depth = next((k for k in depths if len({tail[:k] for tail in tails}) == len(tails)), None)
        if depth is None or not all(Path(split_name(sources[i])[1]).is_dir() for i in alike):
            clash = ", ".join(sources[i] for i in alike)
            raise InvalidValueError(
                f"expected policies of different names, got {name!r} for {clash}; name them: "
                "--policy NAME=POLICY"
            )
        differing = [k for k in range(depth) if len({tail[k] for tail in tails}) > 1]
        for i, tail in zip(alike, tails, strict=True):
            out[i] = " ".join([name, *(tail[k] for k in reversed(differing))])
    return out


def _renamed(policy: Policy, name: str) -> Policy:
    if policy.info.name == name:
        return policy
    try:
        policy.info = replace(policy.info, name=name)  # type: ignore[misc]
    except AttributeError as error:
        raise InvalidValueError(
            f"policy {policy.info.name!r} cannot be called {name!r}: its info is fixed; change it there"
        ) from error
    return policy


def _load_one(name: str, how: dict[str, Any]) -> Policy:
    if is_object(name, group=POLICIES):
        found = load_made(name, group=POLICIES, what="policy", is_one=lambda found: not is_factory(found))
        return checked_policy(found)
    from policies.load import load_policy  # loads torch for a trained policy: not before it is needed

    return load_policy(name, **how)


def joints_schema(joints: Sequence[str]) -> Schema:
    """Return the schema of a robot with the joints of --joints. InvalidValueError: they are invalid."""
    fields = []
    for text in joints:
        part, has_part, names = text.rpartition("=")
        given = () if names.isdecimal() else tuple(names.split(","))
        number = len(given) or int(names)
        fields.append(JointPosition(number, part=part if has_part else ARM, names=given))
    return Schema.of(ActionSpec(fields=tuple(fields), horizon=1, dt_ns=1))


def serve(load: Sequence[Callable[[], Policy]], args: Serve) -> int:
    """Serve the policies that these functions load until SIGINT (exit code 130) or SIGTERM (0)."""
    _check(args)
    anew: SimpleQueue[None] = SimpleQueue()  # reentrant, as a signal handler puts into it
    metrics: dict[str, ServerMetrics] = {}
    with (
        _reload_requests(anew),  # taken while it loads, too
        nullcontext() if args.metrics is None else _metrics_server(args.metrics, metrics),
        nullcontext() if args.page is None else _page(args.page, metrics),
    ):
        sources = args.policy if len(args.policy) == len(load) else ("",) * len(load)
        policies = [_loaded(load_one, source) for load_one, source in zip(load, sources, strict=True)]
        names = distinct_names([policy.info.name for policy in policies], sources)
        policies = [_renamed(policy, name) for policy, name in zip(policies, names, strict=True)]
        metrics |= {name: ServerMetrics() for name in names}
        limited = args.torch_threads if "torch" in sys.modules else None
        with (
            nullcontext() if limited is None else torch_threads(limited),
            tuned_process(),
            _warm_server(policies, args, metrics, collector := Collector()) as server,
            gateways(server, policies, [split_name(source)[1] for source in sources], args),
        ):
            policies.clear()  # else the memory of replaced policies would never be freed
            replacing = partial(_keep_replacing, server, names, load, anew)
            return _until_signalled(server, names, replacing, collector, args.json)


def _loaded(load_one: Callable[[], Policy], source: str) -> Policy:
    with under_way(f"loading {source or 'a policy'}"):
        return load_one()


def _warm_server(
    policies: Sequence[Policy], args: Serve, metrics: dict[str, ServerMetrics], collector: Collector
) -> PolicyServer:
    """Return a server that is warm: the first calls, in which torch compiles, are over."""
    names = ", ".join(policy.info.name for policy in policies)
    with under_way(f"{'compiling and warming up' if args.compile else 'warming up'} {names}"):
        return PolicyServer(
            policies,
            args.address,
            delay=Delay(median_ms=args.delay_ms, sigma=args.delay_sigma, seed=args.delay_seed),
            heartbeat_ns=round(args.heartbeat_ms * 1e6),
            max_batch=args.max_batch,
            keys=None if args.keys is None else ServerKeys.load(args.keys),
            is_open=args.open,
            metrics=metrics,
            open_ns=round(args.warm_s * 1e9),
            say=partial(print, flush=True),
            collector=collector,
        )


def _until_signalled(
    server: PolicyServer,
    names: list[str],
    replacing: Callable[[], None],
    collector: Collector,
    json: Path | None,
) -> int:
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        (server.stop if number == signal.SIGINT else server.drain)()

    with own_handler(end):
        # Python runs handlers between two bytecodes; a signal just before poll sleeps would otherwise wait.
        signal.set_wakeup_fd(server.wakeup_fd(), warn_on_full_buffer=False)
        with collector:
            _announce(server, names, json)
            Thread(target=replacing, daemon=True).start()
            server.serve_forever()
    if signal.SIGINT not in received:
        return 0
    return exit_code(signal.SIGINT)


def _keep_replacing(
    server: PolicyServer,
    names: list[str],
    load: Sequence[Callable[[], Policy]],
    requests: "SimpleQueue[None]",
) -> None:
    """Reload the policies on request; requests that come meanwhile count as one."""
    while True:
        requests.get()
        while not requests.empty():
            requests.get()
        _replace_all(server, names, load)


def _replace_all(server: PolicyServer, names: list[str], load: Sequence[Callable[[], Policy]]) -> None:
    gc.unfreeze()  # else objects of replaced policies would never be freed
    forget()  # a user's own files may have changed
    has_come = False
    for name, load_one in zip(names, load, strict=True):
        try:
            server.replace(name, _loaded(load_one, f"{name} anew"))
            has_come = True
        except Exception as error:
            if (message := sentence(error)) is None:
                logger.exception("%s stays: it could not be loaded anew", name)
            else:
                logger.error("%s stays: %s", name, message)
    if not has_come:
        gc.freeze()  # else the server's collector does, once it has taken over


def _check(args: Serve) -> None:
    """Check what can be checked before a policy is loaded, which may take long."""
    if args.one_graph and not args.compile:
        raise InvalidValueError("--one-graph is for --compile: a GPU records what is compiled")
    if args.compile_cache is not None and not args.compile:
        raise InvalidValueError("--compile-cache is for --compile, without which nothing is compiled")
    infos = [info for source in args.policy if (info := _info_before(source)) is not None]
    infos = infos if len(infos) == len(args.policy) else []
    distinct_names([info.name for info in infos], args.policy)
    check_gateways(args, infos)
    if args.keys is not None:
        ServerKeys.load(args.keys)


def _info_before(source: str) -> PolicyInfo | None:
    """Return the info in a LeRobot policy's folder, without its weights; None without a metadata file."""
    from policies.files import metadata_file

    given, name = split_name(source)
    if not metadata_file(Path(name)).is_file():
        return None
    from policies.lerobot.metadata import PolicyMetadata

    info = PolicyMetadata.load(Path(name)).info
    return replace(info, name=given) if given else info


def _metrics_server(address: str, metrics: dict[str, ServerMetrics]) -> "MetricsServer":
    from robot_runtime.server.metrics_http import MetricsServer  # most servers do not need it

    return MetricsServer(address, metrics)


def _page(address: Sequence[str], metrics: dict[str, ServerMetrics]) -> "StatusServer":
    from robot_runtime.server.status_http import StatusServer  # the same

    host, port = host_and_port(address[0]) if address else PAGE
    page = StatusServer(
        "0.0.0.0" if host == "*" else host.strip("[]"), 0 if port == "*" else int(port), metrics
    )
    print(f"page: {page.url}", flush=True)
    return page


@contextmanager
def tuned_process() -> Iterator[None]:
    """Apply settings of a serving process and restore them; the allocator, which cannot be queried, keeps its
    own."""
    # The policy's thread must not make the network's thread wait for Python's default 5 ms.
    switch_interval_s, files = sys.getswitchinterval(), resource.getrlimit(resource.RLIMIT_NOFILE)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    keep_freed_memory()
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))  # one for every connection
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
        sys.setswitchinterval(switch_interval_s)


@contextmanager
def _reload_requests(requests: "SimpleQueue[None]") -> Iterator[None]:
    """Put a request to reload on each SIGHUP."""
    before = signal.signal(signal.SIGHUP, lambda number, frame: requests.put(None))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _announce(server: PolicyServer, names: list[str], path: Path | None) -> None:
    if path is not None:
        facts = {"address": server.address, "pid": os.getpid(), "policies": names}
        keep_text(path, json.dumps(facts) + "\n")
    print(f"ready: {server.address} policy {', '.join(names)}", flush=True)
