"""Gateways of a server for other projects' clients, from the options of `robot-runtime serve`."""

import json
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_runtime.cli.options import need
from robot_runtime.core.policy import Policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.errors import InvalidValueError
from robot_runtime.keys import check_secret
from robot_runtime.server.server import PolicyServer

if TYPE_CHECKING:
    from policies.commands.serve import Serve
    from robot_runtime.server.gateways import process
    from robot_runtime.server.gateways.key_map import Client, KeyMap
    from robot_runtime.server.gateways.lerobot_messages import Checkpoint


def check_gateways(args: "Serve", infos: Sequence[PolicyInfo]) -> None:
    """Check what can be checked before a policy is loaded. InvalidValueError: an option is invalid.

    infos: of all policies, if their folders contain them; else empty.
    """
    if args.openpi is not None:
        need("websockets")
    if args.lerobot is not None:
        need("grpc", "cv2")
    if _has_gateway(args) and args.keys is not None and args.gateway_keys is None:
        raise InvalidValueError("with --keys, other projects' clients need --gateway-keys too")
    if args.token is not None:
        _token(args.token)
    if args.lerobot_tls is not None:
        _check_tls(*args.lerobot_tls)
    if args.names is not None or _has_gateway(args):
        from robot_runtime.server.gateways.key_map import KeyMap

        for client, address in _addresses(args).items():
            if address is not None:
                names = KeyMap() if args.names is None else KeyMap.load(args.names, client)
                _check_names(names, client, infos)
        if args.names is not None:
            KeyMap.load(args.names)


def _check_names(names: "KeyMap", client: "Client", infos: Sequence[PolicyInfo]) -> None:
    """Check names as the gateway itself does once it starts."""
    from robot_runtime.server.gateways.key_map import KeyMap
    from robot_runtime.server.gateways.lerobot_names import MOVED
    from robot_runtime.server.gateways.policy_session import refuse_for_all

    if not infos:
        return
    refuse_for_all(names, infos)
    for info in infos[:1] if client == "groot" else infos:
        if client != "lerobot":
            own = names.over(KeyMap.of(info.schema))
        elif all(isinstance(field, MOVED) for field in info.action_spec.fields):
            own = names  # LeRobot's client names its numbers itself
        else:
            continue
        own.refuse_undeclared(info.schema, info.action_spec, policy=info.name)


def _addresses(args: "Serve") -> "dict[Client, str | None]":
    """Return the address of each kind of client; None: none."""
    return {"openpi": args.openpi, "lerobot": args.lerobot, "groot": args.groot}


@contextmanager
def gateways(
    server: PolicyServer, policies: Sequence[Policy], sources: Sequence[str], args: "Serve"
) -> Iterator[None]:
    """Run the requested gateways for other projects' clients, each in its own process.

    sources: where each policy is from, as in --policy.
    """
    started: list[process.GatewayProcess] = []
    with ExitStack() as stack:
        if _has_gateway(args):
            from robot_runtime.server.gateways.key_map import KeyMap
            from robot_runtime.server.gateways.policy_session import whole_sampler
            from robot_runtime.server.gateways.process import GatewayProcess, Settings

            for policy in policies:
                whole_sampler(policy.info)
            common: dict[str, Any] = {
                "server": server.address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:"),
                "policies": [policy.info.to_dict() for policy in policies],
                "checkpoints": {
                    policy.info.name: _checkpoint(source)
                    for policy, source in zip(policies, sources, strict=True)
                },
                "token": None if args.token is None else _token(args.token),
                "keys": None if args.gateway_keys is None else str(args.gateway_keys),
                "tls": None if args.lerobot_tls is None else tuple(map(str, args.lerobot_tls)),
                "is_open": args.open,
            }
            for kind, address in _addresses(args).items():
                if address is None:
                    continue
                names = None if args.names is None else KeyMap.load(args.names, kind)
                gateway = stack.enter_context(
                    GatewayProcess(Settings(kind=kind, address=address, names=names, **common))
                )
                started.append(gateway)
                print(f"{kind}: {'ws://' if kind == 'openpi' else ''}{gateway.address}", flush=True)
        yield
        for gateway in started:
            gateway.begin_to_end()  # all at once


def _checkpoint(source: str) -> "Checkpoint":
    """Return the names that a LeRobot client may use for the policy of a folder, or of hf://OWNER/NAME."""
    from robot_runtime.server.gateways.lerobot_messages import Checkpoint

    folder, called = Path(source), {source, source.removeprefix("hf://")} - {""}
    if source and folder.is_dir():
        called |= {str(folder), str(folder.resolve())}
    try:
        kind = json.loads((folder / "config.json").read_bytes()).get("type", "")
    except (OSError, ValueError, AttributeError):
        kind = ""
    return Checkpoint(kind=kind if isinstance(kind, str) else "", called=tuple(sorted(called)))


def _has_gateway(args: "Serve") -> bool:
    return any(address is not None for address in _addresses(args).values())


def _token(path: Path) -> str:
    try:
        check_secret(path)
        token = path.read_text().strip()
    except OSError as error:
        raise InvalidValueError(f"cannot read the token: {error}") from error
    if not token:
        raise InvalidValueError(f"{path} holds no token")
    return token


def _check_tls(certificate: Path, key: Path) -> None:
    try:
        certificate.stat()
        check_secret(key)
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            certificate,
            key,
            password=lambda: b"",  # refuses an encrypted key: there is no one to ask for its password
        )
    except ssl.SSLError as error:
        raise InvalidValueError(
            f"--lerobot-tls takes a certificate and its private key, as PEM files: {certificate} and {key} "
            "are not, or the key has a password"
        ) from error
    except OSError as error:
        raise InvalidValueError(f"cannot read what TLS needs: {error}") from error
