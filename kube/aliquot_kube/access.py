"""What a request needs to reach the API server, and a way to it that needs no credentials' loader.

The official client's loader costs 0.25 s and 35 MiB to import. A kubeconfig that says no more than an http address and
perhaps a token, as `aliquot up` writes it, is read without: a command of a person then starts in a third of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import urllib3

from aliquot_kube.cutting import make_cuttable

# A command asks a few things at once.
_KEPT_CONNECTIONS = 8


@dataclass(frozen=True, kw_only=True)
class Access:
    """What one request needs; `generation` counts how often all was loaded anew."""

    host: str
    # A name may come more than once.
    headers: Sequence[tuple[str, str]]
    pools: urllib3.PoolManager
    generation: int


class AccessSource(Protocol):
    """Where it comes from, for any thread."""

    def access(self) -> Access:
        """What a request needs now; may run a program: never on the event loop."""
        ...

    def distrust(self, access: Access) -> None:
        """The server no longer knows us by that: load all anew."""
        ...

    def close(self) -> None:
        """Close the idle connections."""
        ...


class PlainAccess:
    """An http address and perhaps a token, which never change; and the namespace that is meant where none is said."""

    def __init__(self, *, host: str, token: str = "", namespace: str = "") -> None:
        self.namespace = namespace
        headers = [("Authorization", f"Bearer {token}")] if token else []
        pools = make_cuttable(urllib3.PoolManager(maxsize=_KEPT_CONNECTIONS))
        self._access = Access(host=host, headers=headers, pools=pools, generation=0)

    def access(self) -> Access:
        """Always the same."""
        return self._access

    def distrust(self, access: Access) -> None:
        """There is nothing to load anew."""

    def close(self) -> None:
        """Close the idle connections."""
        self._access.pools.clear()


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


def plain_access(path: Path, *, context: str = "") -> PlainAccess | None:
    """The way that a kubeconfig in JSON says in full by address and token; None where it needs the loader."""
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
    if user is None or user.keys() - {"token"} or not server.startswith("http://"):
        return None
    return PlainAccess(host=server.rstrip("/"), token=user.get("token", ""), namespace=chosen.namespace)
