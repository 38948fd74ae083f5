"""The way to an API server on this machine: HTTP without TLS, and perhaps a token.

It stands beside `HttpTransport` for one reason: commands of a person start anew each time. The official client's loader
costs 0.25 s to import and urllib3 0.05 s; a kubeconfig that says no more than an http address, as `aliquot up` writes
it, needs neither. What needs more (TLS, a proxy, another user) goes the other way.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from aliquot_kube.on_loop import LoopTransport, Way

_SCHEME = "http"


class PlainServer(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is, and the namespace that is meant where none is said."""

    url: str
    token: str = ""
    namespace: str = ""


class PlainTransport(LoopTransport):
    """Asks over connections that stay."""

    def __init__(self, server: PlainServer, *, user_agent: str = "aliquot") -> None:
        super().__init__()
        parts = urlsplit(server.url)
        token = f"Authorization: Bearer {server.token}\r\n" if server.token else ""
        self._way = Way(
            host=parts.hostname or "",
            port=parts.port or 80,
            prefix=parts.path.rstrip("/"),
            headers=f"Host: {parts.netloc}\r\nAccept: application/json\r\nUser-Agent: {user_agent}\r\n{token}",
        )

    async def way(self) -> Way:
        """Always the same."""
        return self._way


class _Named(msgspec.Struct, frozen=True):
    name: str


class _ClusterPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server: str


class _NamedCluster(_Named, frozen=True):
    cluster: _ClusterPart


class _NamedUser(_Named, frozen=True):
    user: dict[str, str]


class _ContextPart(msgspec.Struct, frozen=True):
    cluster: str
    user: str
    namespace: str = ""


class _NamedContext(_Named, frozen=True):
    context: _ContextPart


class _Kubeconfig(msgspec.Struct, frozen=True, rename={"current": "current-context"}):
    clusters: list[_NamedCluster]
    users: list[_NamedUser]
    contexts: list[_NamedContext]
    current: str = ""


def plain_server(path: Path, *, context: str = "") -> PlainServer | None:
    """The server that a kubeconfig in JSON says in full by address and token; None where it needs the loader."""
    try:
        read = msgspec.json.decode(path.read_bytes(), type=_Kubeconfig)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    wanted = context or read.current
    chosen = next((one.context for one in read.contexts if one.name == wanted), None)
    if chosen is None:
        return None
    server = next((one.cluster.server for one in read.clusters if one.name == chosen.cluster), "")
    user = next((one.user for one in read.users if one.name == chosen.user), None)
    if user is None or user.keys() - {"token"} or urlsplit(server).scheme != _SCHEME:
        return None
    return PlainServer(url=_without_user(server), token=user.get("token", ""), namespace=chosen.namespace)


def _without_user(url: str) -> str:
    """The address alone: who asks is said by the token."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
