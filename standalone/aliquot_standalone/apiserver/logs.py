"""`pods/log`: what a container has printed, from where it runs.

The API server of a cluster asks the pod's kubelet; here whoever runs the containers hands in a `LogSource`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from .failures import bad_request
from .listing import read_number

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .exchange import Request
    from .store import Json
    from .terms import Target


class LogWish(msgspec.Struct, frozen=True, kw_only=True):
    """What part of which container's log is wanted."""

    namespace: str
    pod: str
    uid: str
    node: str
    container: str
    # The container before the last restart.
    previous: bool = False
    follow: bool = False
    # From this byte of all that was printed on.
    since: int = 0
    # Lines from the end; None for all.
    tail: int | None = None
    limit: int | None = None


class LogsMissingError(Exception):
    """There is no such log (yet); the text says why, for the user."""


class LogSource(Protocol):
    """Reads logs; the stream ends when the log does, or when it is closed."""

    def read(self, wish: LogWish) -> AsyncGenerator[bytes]:
        """Give what was printed, piece by piece; raises `LogsMissingError` before the first."""
        ...


def log_wish(target: Target, pod: Json, request: Request) -> LogWish:
    """Read what is wanted of a pod's logs."""
    if request.query.get("sinceSeconds") or request.query.get("sinceTime") or request.flag("timestamps"):
        # To show more than was asked would be worse than to show nothing.
        raise bad_request("logs are kept as they are printed, without times: --since and --timestamps need a cluster")
    return LogWish(
        namespace=target.namespace,
        pod=target.name,
        uid=pod["metadata"]["uid"],
        node=pod["spec"].get("nodeName", ""),
        container=_container(target, pod, request.query.get("container", "")),
        previous=request.flag("previous"),
        follow=request.flag("follow"),
        # Of our own: a log that has lost its beginning can't be gone on with by counting from there.
        since=read_number(request, "fromByte") or 0,
        tail=read_number(request, "tailLines"),
        limit=read_number(request, "limitBytes"),
    )


def _container(target: Target, pod: Json, said: str) -> str:
    spec = pod["spec"]
    names = [one["name"] for part in ("initContainers", "containers") for one in spec.get(part, [])]
    if said and said not in names:
        raise bad_request(f"container {said} is not valid for pod {target.name}")
    if not said and len(spec["containers"]) > 1:
        listed = " ".join(one["name"] for one in spec["containers"])
        raise bad_request(f"a container name must be specified for pod {target.name}, choose one of: [{listed}]")
    return said or str(spec["containers"][0]["name"])
