"""The device table: which ids plugins offer, who holds them, and how a pod gets its share. Pure.

How it works. A plugin registers (`connected`), tells all its devices (`listed`, again at every change) and may go away
(`gone`). To admit a pod, the shell runs the generator `admit`: it yields what must be asked of a plugin (`Prefer`,
`Allocate`) and is sent the `Answer`; an `AdmissionError` out of it fails the pod for good, as on a real kubelet.

How ids are chosen is in `choosing`. Ordinary init containers pass their ids on to the pod's later containers, sidecars
and app containers keep theirs.

What must always hold: no id is held by two pods, and within a pod two containers share an id only if one of them is
an ordinary init container. Admissions run one at a time, so ids chosen but not yet recorded need no guard.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from aliquot_core.errors import DefectError
from aliquot_standalone.kubelet.choosing import Allocate, Choice, Device, Options, Order, Steps
from aliquot_standalone.kubelet.errors import AdmissionError, PluginError
from aliquot_standalone.kubelet.holdings import NO_NUMA, Holding, HoldingKey, Holdings


class Role(enum.Enum):
    """How a container uses its devices over time."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What one container asks, by resource."""

    container: str
    role: Role = Role.APP
    resources: dict[str, int] = {}


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What the node's status says of plugin resources."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    removed: frozenset[str]


# (container, resource) → the NUMA nodes that its ids should come from; None where nobody cares.
Affinity = Callable[[str, str], frozenset[int] | None]


class _Resource:
    """What is known of one resource's plugin and devices."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self.healthy: frozenset[str] = frozenset()
        self.unhealthy: frozenset[str] = frozenset()
        self.options: Options | None = None
        self.connected = False
        self.listed = False
        # Whether what is known of the devices was told by a plugin that is there.
        self.current = False
        self.gone_since: float | None = None

    def mark_gone(self, now: float) -> None:
        self.unhealthy |= self.healthy
        self.healthy = frozenset()
        self.connected = False
        self.current = False
        self.gone_since = now


class DeviceTable:
    """All plugin resources of a node."""

    def __init__(self, *, grace: float = 300.0, order: Order = sorted) -> None:
        """`order` says in which order ids without a preference are taken; the kubelet's own is random."""
        self._grace = grace
        self._order = order
        self._resources: dict[str, _Resource] = {}
        self._admitting: str | None = None
        self.holdings = Holdings()

    # --- what plugins do ------------------------------------------------------------------------------------------
    def connected(self, resource: str, options: Options) -> None:
        """A plugin has registered; its devices come with its first list."""
        entry = self._resources.setdefault(resource, _Resource())
        entry.options = options
        entry.connected = True
        entry.gone_since = None

    def listed(self, resource: str, devices: Iterable[Device]) -> None:
        """A plugin tells all its devices."""
        entry = self._resources.setdefault(resource, _Resource())
        entry.devices = {device.id: device for device in devices}
        entry.healthy = frozenset(one.id for one in entry.devices.values() if one.healthy)
        entry.unhealthy = frozenset(entry.devices) - entry.healthy
        entry.listed = entry.current = True

    def gone(self, resource: str, *, now: float) -> None:
        """A plugin's stream ended: none of its devices is healthy any more."""
        if resource in self._resources:
            self._resources[resource].mark_gone(now)

    def remembered(self, resources: Iterable[str], *, now: float) -> None:
        """Resources of an earlier life: zero devices until their plugins register again."""
        for resource in resources:
            entry = self._resources.setdefault(resource, _Resource())
            entry.listed = True
            entry.mark_gone(now)

    # --- what others ask ------------------------------------------------------------------------------------------
    def knows(self, resource: str) -> bool:
        """Whether this is a plugin's resource; others are not the table's business."""
        entry = self._resources.get(resource)
        return (entry is not None and entry.listed) or resource in self.holdings.resources()

    def awaited(self) -> frozenset[str]:
        """Resources whose plugin was there once and has yet to register again and tell its devices."""
        return frozenset(name for name, entry in self._resources.items() if entry.listed and not entry.current)

    def wants_pre_start(self, resource: str) -> bool:
        """Whether the plugin must be called before each start of a container."""
        entry = self._resources.get(resource)
        if entry is None:
            raise PluginError(f"no plugin is known for {resource}")
        return entry.options is not None and entry.options.pre_start

    def registered(self) -> dict[str, list[str]]:
        """Healthy ids by resource, as the checkpoint keeps them."""
        return {name: sorted(entry.healthy) for name, entry in self._resources.items() if entry.listed}

    def healthy_devices(self) -> dict[str, list[Device]]:
        """What could be allocated if nobody held anything."""
        return {
            name: [device for device in entry.devices.values() if device.id in entry.healthy]
            for name, entry in self._resources.items()
            if entry.listed
        }

    def is_healthy(self, resource: str, one: str) -> bool:
        """Health for a pod's status; a device nobody has heard of is given the benefit of the doubt."""
        entry = self._resources.get(resource)
        device = entry.devices.get(one) if entry else None
        return device is None or device.healthy

    def totals(self, *, now: float) -> Totals:
        """Count for the node's status; drops what has been gone for longer than the grace time."""
        listed = {name: entry for name, entry in self._resources.items() if entry.listed}
        expired = {name for name, entry in listed.items() if self._expired(entry, now)}
        for name in expired:
            del self._resources[name]
            del listed[name]
        return Totals(
            capacity={name: len(entry.healthy) + len(entry.unhealthy) for name, entry in listed.items()},
            allocatable={name: len(entry.healthy) for name, entry in listed.items()},
            removed=frozenset(expired),
        )

    def _expired(self, entry: _Resource, now: float) -> bool:
        return entry.gone_since is not None and now - entry.gone_since > self._grace

    def free_all_but(self, active: Collection[str]) -> frozenset[str]:
        """Free what ended pods hold; who they were."""
        return self.holdings.free_all_but(active)

    # --- admission ------------------------------------------------------------------------------------------------
    def admit(
        self,
        *,
        pod: str,
        needs: Sequence[Need],
        running: Collection[str] = (),
        affinity: Affinity | None = None,
    ) -> Steps:
        """Give every container its devices, init containers first; `running` ones were found running at start."""
        if self._admitting is not None:
            raise DefectError(f"admission of {pod} while {self._admitting} is being admitted", where="device table")
        self._admitting = pod
        reusable: dict[str, frozenset[str]] = {}
        try:
            for need in needs:
                yield from self._admit_container(pod, need, running, reusable, affinity)
                self._hand_on(pod, need, reusable)
        finally:
            self._admitting = None

    def _admit_container(
        self,
        pod: str,
        need: Need,
        running: Collection[str],
        reusable: dict[str, frozenset[str]],
        affinity: Affinity | None,
    ) -> Steps:
        for resource, count in need.resources.items():
            if not self.knows(resource):
                continue
            key = HoldingKey(pod, need.container, resource)
            if self._has_all(key, count, found_running=need.container in running):
                continue
            wanted = affinity(need.container, resource) if affinity else None
            entry = self._resources[resource]
            choice = Choice(
                resource=resource,
                count=count,
                devices=entry.devices,
                free=entry.healthy - self.holdings.in_use(resource),
                asks_plugin=entry.options is not None and entry.options.preferred,
                numa=wanted,
                order=self._order,
            )
            ids = yield from choice.run(reusable.get(resource, frozenset()))
            answer = yield Allocate(resource=resource, ids=self._order(ids))
            self.holdings.record(key, Holding(ids_by_numa=self._by_numa(resource, ids), answer=answer.response))

    def _hand_on(self, pod: str, need: Need, reusable: dict[str, frozenset[str]]) -> None:
        for resource, held in self.holdings.of(pod, need.container).items():
            before = reusable.get(resource, frozenset())
            reusable[resource] = before | held.ids if need.role is Role.INIT else before - held.ids

    def _has_all(self, key: HoldingKey, count: int, *, found_running: bool) -> bool:
        """Whether nothing is left to allocate; refuses where the kubelet does, in its order."""
        held = self.holdings.get(key)
        ids = held.ids if held else frozenset[str]()
        if held and len(ids) != count:
            raise AdmissionError(f"{key.container} holds {len(ids)} {key.resource} and now asks {count}")
        if found_running:
            return True
        entry = self._resources.get(key.resource)
        if entry is None or not entry.listed:
            raise AdmissionError(f"no plugin has registered {key.resource}")
        if not entry.healthy:
            raise AdmissionError(f"{key.resource} has no healthy device")
        if not ids <= entry.healthy:
            raise AdmissionError(f"{key.container} holds devices of {key.resource} that have become unhealthy")
        return held is not None or count == 0

    def _by_numa(self, resource: str, ids: Iterable[str]) -> dict[int, list[str]]:
        sorted_ids: dict[int, list[str]] = {}
        for one in self._order(ids):
            for node in self._numa(resource, one) or (NO_NUMA,):
                sorted_ids.setdefault(node, []).append(one)
        return sorted_ids

    def _numa(self, resource: str, one: str) -> tuple[int, ...]:
        device = self._resources[resource].devices.get(one)
        return device.numa if device else ()
