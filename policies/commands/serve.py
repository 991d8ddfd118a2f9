"""`robot-runtime serve`: a policy on an address, until Ctrl-C."""

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
from robot_runtime.server.collector import Collector
from robot_runtime.server.delay import Delay
from robot_runtime.server.door import checked_policy
from robot_runtime.server.memory import keep_freed_memory
from robot_runtime.server.server import HEARTBEAT_NS, MAX_BATCH, PolicyServer
from robot_runtime.server.server_metrics import ServerMetrics
from robot_runtime.server.warming import OPEN_NS
from robot_runtime.signals import Ended
from robot_runtime.transport.address import DEFAULT_ADDRESS, host_and_port
from robot_runtime.user_code import forget

if TYPE_CHECKING:
    from robot_runtime.server.metrics_http import MetricsServer
    from robot_runtime.server.status_http import StatusServer

logger = logging.getLogger(__name__)
POLICIES = "robot_runtime.policies"
"""The group of entry points that installed policies are found by."""
PAGE = ("127.0.0.1", "8090")
"""Where the page is if nothing is said."""
_SWITCH_INTERVAL_S = 0.0005
_POLICY = (
    "One policy or several: names of shipped or scripted ones, folders of trained ones, hf://OWNER/NAME, or "
    "your own, as my_policy.py:policy, package.module:object or an entry point of robot_runtime.policies. "
    "NAME=POLICY serves it under another name. "
    f"{SHIPPED}"
)


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Run an inference server: load policies, warm them up, then answer robots.

    For the machine with the GPU. Ctrl-C ends it at once, SIGTERM once it has answered what it was asked, both
    within 2 s. SIGHUP loads the policies anew: each replaces its older self when it is warm, and no request
    is lost.
    """

    policy: Annotated[Some[str], arg(help=_POLICY)]
    address: OwnAddress = DEFAULT_ADDRESS
    """Where to listen: tcp://HOST:PORT or HOST:PORT. Port * takes a free one. Host * listens beyond this
    machine, which takes --keys."""
    keys: Maybe[InputFolder] = None
    """The server's folder of `robot-runtime keys`: only robots whose keys are in it are answered."""
    open: bool = False
    """Listen beyond this machine without keys: whoever reaches the address can use the policy."""
    delay_ms: Milliseconds = 0.0
    """Hold every answer back for so long [ms], as a slow network would; the policy goes on meanwhile."""
    delay_sigma: Annotated[float, Within(0, 10)] = 0.0
    """Spread of that delay: standard deviation of the logarithm of its lognormal factor."""
    delay_seed: Seed = 0
    """Seed of the spread."""
    heartbeat_ms: HeartbeatMs = HEARTBEAT_NS / 1e6
    """How often robots ask for a sign of life [ms], over a quick link."""
    max_batch: Batch = MAX_BATCH
    """Most robots that are answered together, by a policy that can do so; 1 answers one at a time."""
    warm_s: Annotated[float, Within(0, 86400)] = OPEN_NS / 1e9
    """How long to go on warming up once a robot could be answered [s]. Other methods and larger batches that
    are not warm then are warmed up between requests, each with a line. Many seconds: all before it opens."""
    device: str = "cpu"
    """Where networks compute, in torch's words: cpu, cuda, cuda:1."""
    dtype: Maybe[Literal["float32", "bfloat16"]] = None
    """Number format for the weights of LeRobot's SmolVLA, pi0, pi0.5 and X-VLA; as the checkpoint says if not
    given. The log says how far rows then are from those in float32."""
    max_row_error: Maybe[RowError] = None
    """How far the rows of LeRobot's SmolVLA, pi0 and pi0.5 may be from those in float32, as a share of their
    size; a policy that is further is not served."""
    compile: bool = False
    """Have torch compile LeRobot's SmolVLA, pi0 and pi0.5: what one robot asks before it is ready, every size
    of batch after that."""
    one_graph: bool = False
    """With --compile: run each chunk as one from pictures to rows, which a GPU records as one CUDA graph."""
    compile_cache: Maybe[OutputFolder] = None
    """Where to keep what was compiled, for the next start; if not given ~/.cache/robot-runtime/compiled, or
    what TORCHINDUCTOR_CACHE_DIR says."""
    policy_host: Several[str] = ()
    """Other machines that a policy's folder (openpi.json) may send observations to."""
    joints: Several[str] = ()
    """For the policies hold and sine: the robot's joints, if they are not seven of "arm" and a gripper. A
    number, PART=NUMBER, or PART=NAME,NAME,...; several for several parts. Other parts are held still."""
    torch_threads: Maybe[Processes] = None
    """Threads that torch may use; as torch has it if not given. No effect on a policy without torch."""
    openpi: Maybe[HostPort] = None
    """HOST:PORT at which to answer openpi's clients too, over WebSocket: ws://HOST:PORT/NAME is the policy
    NAME, and the first one without NAME."""
    lerobot: Maybe[HostPort] = None
    """HOST:PORT at which to answer LeRobot's robot clients too, over gRPC; on this machine only, or with
    TLS."""
    lerobot_tls: Maybe[tuple[InputFile, InputFile]] = None
    """Certificate and private key for --lerobot, as PEM files."""
    groot: Maybe[HostPort] = None
    """HOST:PORT at which to answer GR00T's clients too, over ZeroMQ, with the first policy."""
    names: Maybe[InputFile] = None
    """JSON file that says which entry of the other projects' observations is what, and in which unit, see
    docs/openpi_groot.md."""
    gateway_keys: Maybe[InputFolder] = None
    """With --keys: the folder of the robot as which the other projects' clients are answered."""
    token: Maybe[InputFile] = None
    """File with the api_key, or api_token, that openpi's and GR00T's clients have to give."""
    metrics: Maybe[HostPort] = None
    """HOST:PORT at which to answer HTTP: /metrics for Prometheus, /healthz, /readyz."""
    page: PageAddress = None
    """Show in a browser who is connected, queues, batches, deadlines, latencies: at 127.0.0.1:8090, or where
    is said. Beyond this machine the page asks for a token, which is in the address that is printed."""
    json: Maybe[OutputFile] = None
    """Write address, process id and policies to this file once ready, as JSON."""

    def main(self) -> int:
        """Serve the policies that were asked for; returns the exit code."""
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
            faulthandler.enable(file=2)  # code that was kept in part ends the process
        if self.joints:
            how["schema"] = joints_schema(self.joints)
        with _compiler_errors() if self.compile else nullcontext():
            code = serve([partial(_load, name, how) for name in self.policy], self)
        if code == exit_code(signal.SIGINT):
            raise Ended(signal.SIGINT)
        return code


@contextmanager
def _compiler_errors() -> Iterator[None]:
    """In a sentence: PolicyError."""
    from policies.compiled import compiler_trouble

    try:
        yield
    except Exception as error:
        if (said := compiler_trouble(error)) is None:
            raise
        raise PolicyError(said) from error


def _load(source: str, how: dict[str, Any]) -> Policy:
    """A user's own object, or what `load_policy` knows; renamed if the source is NAME=SOURCE."""
    given, name = split_name(source)
    loaded = _load_one(name, how)
    return _renamed(loaded, given) if given else loaded


def split_name(source: str) -> tuple[str, str]:
    """The name that --policy gives a policy, empty if it gives none, and where the policy is from."""
    given, found, rest = source.partition("=")
    return (given, rest) if found and given and not Path(source).exists() else ("", source)


def distinct_names(names: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Policies' names; those that clash get the nearest ancestors of their folders that differ.

    names: as the policies have them. sources: as --policy has them. InvalidValueError: nothing differs.
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
    """Of a robot that is told these joints, as --joints names them. InvalidValueError: they are none."""
    fields = []
    for text in joints:
        part, said, names = text.rpartition("=")
        told = () if names.isdecimal() else tuple(names.split(","))
        number = len(told) or int(names)
        fields.append(JointPosition(number, part=part if said else ARM, names=told))
    return Schema.of(ActionSpec(fields=tuple(fields), horizon=1, dt_ns=1))


def serve(load: Sequence[Callable[[], Policy]], args: Serve) -> int:
    """Serve what these functions load until SIGINT (exit code 130) or SIGTERM (0)."""
    _check(args)
    anew: SimpleQueue[None] = SimpleQueue()  # which a handler may interrupt itself in
    metrics: dict[str, ServerMetrics] = {}
    with (
        _orders_to_reload(anew),  # while it loads, too
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
            policies.clear()  # or the memory of those that are replaced would never be free
            replacing = partial(_keep_replacing, server, names, load, anew)
            return _until_signalled(server, names, replacing, collector, args.json)


def _loaded(load_one: Callable[[], Policy], source: str) -> Policy:
    with under_way(f"loading {source or 'a policy'}"):
        return load_one()


def _warm_server(
    policies: Sequence[Policy], args: Serve, metrics: dict[str, ServerMetrics], collector: Collector
) -> PolicyServer:
    """A server that robots can ask: the first calls are over, in which torch compiles."""
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
        # Python runs the handler between two bytecodes; a signal just before poll sleeps would wait with it.
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
    orders: "SimpleQueue[None]",
) -> None:
    """Load the policies anew when there are orders to; those that come meanwhile are one, and wait."""
    while True:
        orders.get()
        while not orders.empty():
            orders.get()
        _replace_all(server, names, load)


def _replace_all(server: PolicyServer, names: list[str], load: Sequence[Callable[[], Policy]]) -> None:
    gc.unfreeze()  # or what a policy that is replaced has made would never be free
    forget()  # a user's own files may have changed
    has_come = False
    for name, load_one in zip(names, load, strict=True):
        try:
            server.replace(name, _loaded(load_one, f"{name} anew"))
            has_come = True
        except Exception as error:
            if (said := sentence(error)) is None:
                logger.exception("%s stays: it could not be loaded anew", name)
            else:
                logger.error("%s stays: %s", name, said)
    if not has_come:
        gc.freeze()  # else the server's collector does, once it has taken over


def _check(args: Serve) -> None:
    """What can be known to be wrong before a policy is loaded, which may take long."""
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
    """What a folder of LeRobot's says of its policy, without its weights; None: nothing says it."""
    from policies.files import metadata_file

    given, name = split_name(source)
    if not metadata_file(Path(name)).is_file():
        return None
    from policies.lerobot.metadata import PolicyMetadata

    info = PolicyMetadata.load(Path(name)).info
    return replace(info, name=given) if given else info


def _metrics_server(address: str, metrics: dict[str, ServerMetrics]) -> "MetricsServer":
    from robot_runtime.server.metrics_http import MetricsServer  # most servers do without

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
    """Settings of a process while it serves; the allocator, which cannot be asked for its own, keeps them."""
    # The policy's thread must not keep the network's waiting for Python's default 5 ms.
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
def _orders_to_reload(orders: "SimpleQueue[None]") -> Iterator[None]:
    """SIGHUP is one."""
    before = signal.signal(signal.SIGHUP, lambda number, frame: orders.put(None))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _announce(server: PolicyServer, names: list[str], path: Path | None) -> None:
    if path is not None:
        facts = {"address": server.address, "pid": os.getpid(), "policies": names}
        keep_text(path, json.dumps(facts) + "\n")
    print(f"ready: {server.address} policy {', '.join(names)}", flush=True)
