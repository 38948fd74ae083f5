"""Who may look: everybody on this machine itself, and elsewhere whoever may list all pods and nodes.

Without login the page answers only where both ends of the connection are this machine, no proxy stands between, and
the address bar says so too: another site's name that was bound to 127.0.0.1 is not taken for it. A token travels over
TLS alone. What the page shows is what its reader could list anyway, so no new right is needed to look.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

COOKIE = "__Host-aliquot"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Verdict(StrEnum):
    """What becomes of somebody who wants to look."""

    OPEN = "open"
    # A token is to be judged; there may be none.
    LOGIN = "login"
    # Neither end is to be trusted, and nothing secret may be said.
    PLAIN = "plain"
    STRANGE_HOST = "strange host"
    CROSS_SITE = "cross site"


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request before anybody is asked."""

    tls: bool
    # A replica of the centre asks for somebody whom it has judged.
    replica: bool
    # Both ends of the connection; empty where that is not known.
    peer: str
    own: str
    host: str
    # Whether a proxy says that it speaks for another.
    proxied: bool
    # What the browser says of who asks (`Sec-Fetch-Site`, `Sec-Fetch-Mode`).
    site: str
    mode: str


def judge(visit: Visit, *, hosts: Collection[str]) -> Verdict:
    """Judge a visit; `hosts` are names that are good beside those of loopback."""
    if visit.replica:
        return Verdict.OPEN
    if visit.site == "cross-site" and visit.mode != "navigate":
        return Verdict.CROSS_SITE
    if visit.tls:
        return Verdict.LOGIN
    if visit.proxied or not (is_loopback(visit.peer) and is_loopback(visit.own)):
        return Verdict.PLAIN
    return Verdict.OPEN if _host(visit.host) in _LOOPBACK.union(hosts) else Verdict.STRANGE_HOST


def is_loopback(address: str) -> bool:
    """Whether an address is this machine itself."""
    try:
        return ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _host(header: str) -> str:
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return ""
