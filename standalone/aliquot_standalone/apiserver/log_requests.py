"""What a request for `pods/log` wants, read and checked against the pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .failures import bad_request
from .logs import LogWish

if TYPE_CHECKING:
    from .exchange import Request
    from .store import Json
    from .terms import Target


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
        since=request.number("fromByte") or 0,
        tail=request.number("tailLines"),
        limit=request.number("limitBytes"),
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
