"""Who may see a page and send its orders: `Guard` checks each request before it is answered.

on loopback       no token; the request must name this machine (Host): otherwise another site's page in a
                  browser on it could reach us by a name of its own (DNS rebinding)
elsewhere         a token, first in the address (?token=...), then in a cookie that no other site's page sends
everywhere        requests of another site's page are refused (Origin)
"""

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

_LOCAL_NAMES = frozenset({"localhost", "ip6-localhost"})


@dataclass(frozen=True, kw_only=True)
class Guard:
    """What a request has to present."""

    token: str | None
    """None: no token, for pages that only this machine reaches."""
    cookie: str = "page"
    """The cookie's name, with the port: cookies ignore ports, so pages at two ports need two."""

    @classmethod
    def at(cls, host: str, port: int) -> "Guard":
        """The guard of a page that listens there."""
        return cls(token=None if is_loopback(host) else secrets.token_urlsafe(16), cookie=f"page_{port}")

    def complaint(self, target: str, headers: Mapping[str, str]) -> str:
        """Why a request is refused; empty: it is not.

        target: path and query. headers: by name in lower case.
        """
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.token is None and not is_loopback(_name_in(f"//{host}")):
            return (
                f"this page answers to this machine's own names, localhost or 127.0.0.1, not to {host!r:.80}"
            )
        if origin is not None and origin.partition("://")[2] != host:
            return "another site's page asked for this"
        if self.token is None:
            return ""
        brought = [self.in_target(target), self._in_cookie(headers.get("cookie", ""))]
        if any(each and secrets.compare_digest(each.encode(), self.token.encode()) for each in brought):
            return ""
        return "a token is needed: open the address that the run printed, with ?token=..."

    def in_target(self, target: str) -> str:
        """The token in an address, or an empty text."""
        return parse_qs(urlsplit(target).query).get("token", [""])[0]

    def _in_cookie(self, text: str) -> str:
        try:
            found = SimpleCookie(text).get(self.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value

    def set_cookie(self) -> str:
        """The header that makes a browser keep its token."""
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"


def _name_in(address: str) -> str:
    """The host in an address, or an empty text."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a name or an address is loopback, which no other machine reaches."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() in _LOCAL_NAMES
