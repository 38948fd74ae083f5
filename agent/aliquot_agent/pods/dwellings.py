"""Which container a process lives in, read from what the kernel says of it. Pure.

A process's cgroup is a path in which the kubelet's part names the pod's UID and the runtime's part the container:

    systemd     …/kubepods-burstable-pod<uid with underscores>.slice/cri-containerd-<id>.scope   (crio-, docker-)
    cgroupfs    …/kubepods/burstable/pod<uid>/<id>
    both mixed  …/kubepods-burstable-pod<uid with underscores>.slice:cri-containerd:<id>

Version 1 has such a path per controller, version 2 one. What stands before is anybody's: `kubelet-` in names where the
kubelet has a root of its own, the node's own container in kind, `/../..` where the reader sits in another cgroup
namespace. So neither the beginning nor `kubepods` is asked for, but the exact form of a UID, which keeps podman's
`libpod-<id>` apart. A kubelet inside a container of another makes two pods in one path: both are told, outermost first.

Where the kubelet makes no cgroups for pods, the mounts that it gives each container tell: a file of the pod's folder at
a place of the container's own. The node's own processes see the pod's volumes too, but at the kubelet's place for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

# A UID as the API server makes it, or the hash of a static pod's manifest.
_POD = re.compile(
    r"(?:^|-)pod(?P<uid>[0-9a-f]{8}(?P<dash>[-_])(?:[0-9a-f]{4}(?P=dash)){3}[0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$"
)
_CONTAINER = re.compile(r"^(?:(?:cri-containerd|crio|docker|cri-docker)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?$")
_GIVEN = re.compile(r"(?P<mark>/pods/(?P<uid>[^/ ]{1,128})/)(?:containers/(?P<name>[^/ ]{1,63})/)?")
_BETWEEN = re.compile(r"[/:]")


class Dwelling(msgspec.Struct, frozen=True, kw_only=True):
    """A container of a pod: its id with the runtime, or its name, or neither where only the pod is known."""

    pod: str
    container_id: str = ""
    container: str = ""


def dwellings(*, cgroup: str, mounts: str = "") -> tuple[Dwelling, ...]:
    """Where a process may live, by /proc/<pid>/cgroup and, if that says nothing, /proc/<pid>/mountinfo."""
    found = [one for line in cgroup.splitlines() for one in _of_path(line)] or [*by_mounts(mounts)]
    # Controllers differ in how deep a process sits, and mounts in what they are of: what names the container counts.
    told = {one.pod for one in found if one.container_id or one.container}
    return tuple(dict.fromkeys(one for one in found if one.container_id or one.container or one.pod not in told))


def by_mounts(mounts: str) -> Iterator[Dwelling]:
    """Pods and containers whose files are mounted where only the container's own processes see them."""
    if "/pods/" not in mounts:
        return
    for line in mounts.splitlines():
        # proc(5): mount id, parent, device, what of the file system is mounted, where, and more.
        _id, _parent, _device, root, place, *_ = *line.split(" ", 5), *[""] * 5
        if (given := _GIVEN.search(root)) is not None and given["mark"] not in place:
            yield Dwelling(pod=given["uid"], container=given["name"] or "")


def _of_path(line: str) -> Iterator[Dwelling]:
    """Read `0::/path` or `7:memory:/path`."""
    parts = [part for part in _BETWEEN.split(line.split(":", 2)[-1]) if part]
    for number, part in enumerate(parts):
        if (pod := _POD.search(part)) is not None:
            yield Dwelling(pod=pod["uid"].replace("_", "-"), container_id=_container(parts[number + 1 :]))


def _container(below: list[str]) -> str:
    """The container's part stands right below the pod's; in the mixed form the runtime's name stands between."""
    for part in below[:2]:
        if (container := _CONTAINER.match(part)) is not None:
            return container["id"]
    return ""
