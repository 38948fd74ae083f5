"""Who uses how much of which GPU: the driver's processes, put to the account of slices. Pure.

The driver tells of processes, `dwellings` of containers, the grants of slices. What must always hold: a process is put
to one account or to none; a figure that rests on something unknown is left out, never guessed. So a slice of which no
process is seen uses nothing only if every process on its GPU is accounted for. MPS's servers are nobody's: a driver may
tell of them what their clients do, so on their GPUs only what is told of a container's own processes counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from aliquot_agent.gpus.model import GpuProcess, GpuUsage
from aliquot_agent.pods.dwellings import Dwelling
from aliquot_agent.pods.standing import Standing
from aliquot_core.grant import Grant
from aliquot_core.objects import ContainerStatus, Pod


class Owner(StrEnum):
    """Whose a process without a grant is."""

    POD = "pod"
    HOST = "host"
    UNKNOWN = "unknown"


class SliceUse(msgspec.Struct, frozen=True, kw_only=True):
    """One container's slice of one GPU, and what it uses of it; None is what is not known."""

    namespace: str
    pod: str
    # The pod's UID.
    uid: str = ""
    container: str
    gpu: str
    compute: int
    limit: int
    memory_mib: int
    # The mode in which it is held; empty if the grant does not say.
    isolation: str = ""
    used_percent: int | None = None
    used_mib: int | None = None


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """All slices in force, and the processes that are none of theirs: how many by GPU and owner."""

    slices: tuple[SliceUse, ...] = ()
    strangers: Mapping[tuple[str, Owner], int] = {}
    # Of these, those of pods: pid, pod (its UID) and GPU.
    trespassers: tuple[tuple[int, str, str], ...] = ()


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that holds slices here."""

    pod: Pod
    grant: Grant


# One container's account on one GPU.
_Account = tuple[str, str, str]


def accounts(
    *,
    usages: Sequence[GpuUsage],
    dwellings: Mapping[int, tuple[Dwelling, ...]],
    tenants: Mapping[str, Tenant],
    standing: Mapping[str, Standing],
    servers: Collection[int] = (),
) -> Accounts:
    """Put every process to an account; tenants and pods of whom only processes are left, by UID.

    `servers` are the processes of MPS.
    """
    used: dict[_Account, list[GpuProcess]] = {}
    unclear: set[tuple[str, str]] = set()  # (gpu, pod): a process of one of its containers, but of which?
    strangers: dict[tuple[str, Owner], int] = {}
    trespassers: list[tuple[int, str, str]] = []
    served = {usage.uuid for usage in usages if any(process.pid in servers for process in usage.processes)}
    for usage in usages:
        for process in (one for one in usage.processes if one.pid not in servers):
            home = _home(process.pid, usage.uuid, dwellings=dwellings, tenants=tenants, standing=standing)
            if isinstance(home, Owner):
                strangers[usage.uuid, home] = strangers.get((usage.uuid, home), 0) + 1
                if home is Owner.POD:
                    trespassers.append((process.pid, dwellings[process.pid][0].pod, usage.uuid))
            elif home is not None and home[1]:
                used.setdefault((usage.uuid, *home), []).append(process)
            elif home is not None:
                unclear.add((usage.uuid, home[0]))
    known = {usage.uuid for usage in usages}
    whole = {gpu for gpu in known - served if (gpu, Owner.UNKNOWN) not in strangers}
    slices = tuple(
        one
        if (one.gpu, uid) in unclear
        else _with_use(one, used.get((one.gpu, uid, one.container)), whole=whole, served=served)
        for uid, one in _slices(tenants)
    )
    return Accounts(slices=slices, strangers=strangers, trespassers=tuple(trespassers))


def _home(
    pid: int,
    gpu: str,
    *,
    dwellings: Mapping[int, tuple[Dwelling, ...]],
    tenants: Mapping[str, Tenant],
    standing: Mapping[str, Standing],
) -> tuple[str, str] | Owner | None:
    """The pod and container whose slice a process uses, the container empty if unclear; or whose it is without a slice.

    None: it is of a pod whose object is gone and whose claims still count.
    """
    if pid not in dwellings:
        return Owner.UNKNOWN
    for dwelling in dwellings[pid]:
        if (tenant := tenants.get(dwelling.pod)) is not None:
            container = _container(tenant.pod, dwelling)
            holders = {name for name, part in tenant.grant.slices() if part.gpu == gpu}
            if container in holders or (not container and holders):
                return dwelling.pod, container
            return Owner.POD
        if dwelling.pod in standing:
            return None if gpu in standing[dwelling.pod].claims else Owner.POD
    return Owner.POD if dwellings[pid] else Owner.HOST


def _container(pod: Pod, dwelling: Dwelling) -> str:
    """The container's name; empty where the pod's status does not know the id yet."""
    if dwelling.container:
        return dwelling.container
    for status in _statuses(pod):
        if dwelling.container_id and status.container_id.partition("://")[2] == dwelling.container_id:
            return status.name
    return ""


def _slices(tenants: Mapping[str, Tenant]) -> Iterator[tuple[str, SliceUse]]:
    """Every slice of a container that has not ended, with its pod's UID; nothing is known of its use yet."""
    for uid, tenant in sorted(tenants.items()):
        ended = {status.name for status in _statuses(tenant.pod) if "terminated" in status.state}
        for container, part in tenant.grant.slices():
            if container not in ended:
                yield (
                    uid,
                    SliceUse(
                        namespace=tenant.pod.metadata.namespace,
                        pod=tenant.pod.metadata.name,
                        uid=uid,
                        container=container,
                        gpu=part.gpu,
                        compute=part.compute.value,
                        limit=part.limit.value,
                        memory_mib=part.memory.value,
                        isolation=tenant.grant.containers[container].isolation,
                    ),
                )


def _with_use(one: SliceUse, processes: list[GpuProcess] | None, *, whole: set[str], served: set[str]) -> SliceUse:
    if processes is None:
        return msgspec.structs.replace(one, used_percent=0, used_mib=0) if one.gpu in whole else one
    percent = _sum(process.sm_percent for process in processes)
    return msgspec.structs.replace(
        one,
        # None of a client's own may be the server's, who is told to have used it.
        used_percent=percent if percent or one.gpu not in served else None,
        used_mib=_sum(process.memory_mib for process in processes),
    )


def _sum(parts: Iterator[int | None]) -> int | None:
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _statuses(pod: Pod) -> list[ContainerStatus]:
    return pod.status.container_statuses + pod.status.init_container_statuses
