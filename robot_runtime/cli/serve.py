"""`robot-runtime serve`: a policy on an address, until Ctrl-C."""

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from policies.policy import Policy
from robot_runtime.cli.signals import exit_code, own_handler
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.keys import RobotKeys, ServerKeys
from robot_runtime.server.account import Account
from robot_runtime.server.delay import Delay
from robot_runtime.server.memory import keep_freed_memory
from robot_runtime.server.server import HEARTBEAT_NS, MAX_BATCH, PolicyServer
from robot_runtime.transport.address import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from robot_runtime.server.metrics import MetricsServer

logger = logging.getLogger(__name__)
_SWITCH_INTERVAL_S = 0.0005


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Run an inference server: loads policies, warms them up, then answers robots.

    Ctrl-C ends it at once, SIGTERM after the requests that it has. SIGHUP loads the policies anew: each goes
    on in place of its older self when it is warm, and no request is lost.
    """

    policy: tuple[str, ...]
    """One or several: scripted or shipped policies by name, folders of trained ones, hf://OWNER/NAME."""
    address: str = DEFAULT_ADDRESS
    """Where to listen. Port * takes a free one. Beyond this machine, tcp://*:5757 say, only with keys."""
    keys: Path | None = None
    """The server's folder of `robot-runtime keys`: only robots whose keys it names are answered."""
    open: bool = False
    """Listen beyond this machine without keys: whoever reaches the address can use the policy."""
    delay_ms: float = 0.0
    """Hold every answer back for so long [ms], as a slow network would: the policy goes on meanwhile."""
    delay_sigma: float = 0.0
    """Spread of the delay: standard deviation of the logarithm of its lognormal factor."""
    delay_seed: int = 0
    """Seed of the spread."""
    heartbeat_ms: float = HEARTBEAT_NS / 1e6
    """How often robots ask for a sign of life [ms]; they give up after five are missing."""
    max_batch: int = MAX_BATCH
    """Most robots that are answered together, by a policy that can; 1 answers one at a time."""
    device: str = "cpu"
    """Where networks compute, in torch's words: cuda for a GPU."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """Of the weights of LeRobot's pi0 and pi0.5; None leaves them as they are."""
    compile: bool = False
    """Have torch compile LeRobot's SmolVLA, pi0 and pi0.5 for every size of batch, before it is ready."""
    policy_host: tuple[str, ...] = ()
    """Other machines that a policy's folder (`openpi.json`) may send observations to."""
    torch_threads: int | None = None
    """Threads torch may use; None leaves it to torch. No effect on a policy without torch."""
    openpi: str | None = None
    """Also answer openpi's clients over WebSocket at HOST:PORT/NAME, without NAME for the first policy."""
    lerobot: str | None = None
    """Also answer LeRobot's robot clients over gRPC at HOST:PORT; on this machine only, or with TLS."""
    lerobot_tls: tuple[Path, Path] | None = None
    """Certificate and private key for that, PEM files."""
    groot: str | None = None
    """Also answer GR00T's clients over ZeroMQ at HOST:PORT, with the first policy."""
    names: Path | None = None
    """A JSON file that says which entry of those observations is what; see `server/gateways/names.py`."""
    gateway_keys: Path | None = None
    """With keys: the folder of the robot as which those clients are answered."""
    token: Path | None = None
    """A file with the api_key, or api_token, that openpi's and GR00T's are to give."""
    metrics: str | None = None
    """Answer HTTP at HOST:PORT: /metrics for Prometheus, /healthz, /readyz."""
    json: Path | None = None
    """Write address, process id and policies to this file once ready."""

    def main(self) -> int:
        """Serve the policies that were asked for; returns the exit code."""
        from policies.loading import load_policy  # loads torch for a trained policy: not before it is needed

        how: dict[str, Any] = {
            "device": self.device,
            "dtype": self.dtype,
            "is_compiled": self.compile,
            "hosts": self.policy_host,
        }
        return serve([partial(load_policy, name, **how) for name in self.policy], self)


def serve(load: Sequence[Callable[[], Policy]], args: Serve) -> int:
    """Serve what these functions load until SIGINT (exit code 130) or SIGTERM (0)."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    _check(args)
    accounts: dict[str, Account] = {}
    with nullcontext() if args.metrics is None else _metrics_server(args.metrics, accounts):
        policies = [load_one() for load_one in load]
        accounts |= {policy.name: Account() for policy in policies}
        if args.torch_threads is not None and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(args.torch_threads)
        tune_process()
        server = PolicyServer(
            policies,
            args.address,
            delay=Delay(median_ms=args.delay_ms, sigma=args.delay_sigma, seed=args.delay_seed),
            heartbeat_ns=round(args.heartbeat_ms * 1e6),
            max_batch=args.max_batch,
            keys=None if args.keys is None else ServerKeys.load(args.keys),
            is_open=args.open,
            accounts=accounts,
        )
        names = [policy.name for policy in policies]
        with server, _gateways(server, policies, args):
            return _until_signalled(server, names, load, args.json)


def _until_signalled(
    server: PolicyServer, names: list[str], load: Sequence[Callable[[], Policy]], json: Path | None
) -> int:
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        (server.stop if number == signal.SIGINT else server.drain)()

    def load_anew(number: int, frame: FrameType | None) -> None:
        Thread(target=_replace_all, args=(server, names, load), daemon=True).start()

    with own_handler(end):
        signal.signal(signal.SIGHUP, load_anew)
        # Python runs the handler between two bytecodes; a signal just before poll sleeps would wait with it.
        signal.set_wakeup_fd(server.wakeup_fd(), warn_on_full_buffer=False)
        _announce(server, names, json)
        server.serve_forever()
    if signal.SIGINT not in received:
        return 0
    print("interrupted", file=sys.stderr)
    return exit_code(signal.SIGINT)


def _replace_all(server: PolicyServer, names: list[str], load: Sequence[Callable[[], Policy]]) -> None:
    for name, load_one in zip(names, load, strict=True):
        try:
            server.replace(name, load_one())
        except RobotRuntimeError as error:
            logger.error("%s stays: %s", name, error)
        except Exception:
            logger.exception("%s stays: it could not be loaded anew", name)


@contextmanager
def _gateways(server: PolicyServer, policies: Sequence[Policy], args: Serve) -> Iterator[None]:
    """For other projects' clients, those that were asked for."""
    with ExitStack() as stack:
        if _has_gateway(args):
            from robot_runtime.server.gateways.names import Names

            address = server.address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
            served = {policy.name: policy for policy in policies}
            names = None if args.names is None else Names.load(args.names)
            keys = None if args.gateway_keys is None else RobotKeys.load(args.gateway_keys)
            token = None if args.token is None else _token(args.token)
        if args.openpi is not None:
            from robot_runtime.server.gateways.openpi import OpenpiGateway

            openpi = OpenpiGateway(
                served, server=address, address=args.openpi, names=names, token=token, keys=keys,
                is_open=args.open,
            )  # fmt: skip
            print(f"openpi: ws://{stack.enter_context(openpi).address}", flush=True)
        if args.lerobot is not None:
            from robot_runtime.server.gateways.lerobot import LeRobotGateway

            lerobot = LeRobotGateway(
                served, server=address, address=args.lerobot, names=names, tls=args.lerobot_tls, keys=keys
            )
            print(f"lerobot: {stack.enter_context(lerobot).address}", flush=True)
        if args.groot is not None:
            from robot_runtime.server.gateways.groot import GrootGateway

            groot = GrootGateway(
                policies[0], server=address, address=args.groot, names=names, token=token, keys=keys,
                is_open=args.open,
            )  # fmt: skip
            print(f"groot: {stack.enter_context(groot).address}", flush=True)
        yield


def _check(args: Serve) -> None:
    """What can be known to be wrong before a policy is loaded, which may take long."""
    if args.max_batch < 1:
        raise InvalidValueError(f"max_batch is at least 1, got {args.max_batch}")
    if _has_gateway(args) and args.keys is not None and args.gateway_keys is None:
        raise InvalidValueError("with --keys, other projects' clients need --gateway-keys too")
    if args.keys is not None:
        ServerKeys.load(args.keys)
    if args.token is not None:
        _token(args.token)


def _has_gateway(args: Serve) -> bool:
    return any(address is not None for address in (args.openpi, args.lerobot, args.groot))


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise InvalidValueError(f"cannot read the token: {error}") from error
    if not token:
        raise InvalidValueError(f"{path} holds no token")
    return token


def _metrics_server(address: str, accounts: dict[str, Account]) -> "MetricsServer":
    from robot_runtime.server.metrics import MetricsServer  # most servers do without

    return MetricsServer(address, accounts)


def tune_process() -> None:
    """Settings of a process that does nothing but serve."""
    # The policy's thread must not keep the network's waiting for Python's default 5 ms.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    keep_freed_memory()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # one for every connection


def _announce(server: PolicyServer, names: list[str], path: Path | None) -> None:
    if path is not None:
        facts = {"address": server.address, "pid": os.getpid(), "policies": names}
        written = path.with_suffix(path.suffix + ".part")
        written.write_text(json.dumps(facts) + "\n")
        written.replace(path)
    print(f"ready: {server.address} policy {', '.join(names)}", flush=True)
