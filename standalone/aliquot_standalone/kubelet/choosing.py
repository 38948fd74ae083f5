"""Choosing ids of one resource for one container, in the kubelet's order. Pure.

First come those that an ordinary init container of the same pod holds, then those aligned with the wanted NUMA nodes,
then what the plugin prefers, then any. With room among the aligned ids the plugin may choose among them; without,
all of them are taken unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping

import msgspec

from aliquot_standalone.kubelet.errors import AdmissionError


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One device as its plugin tells of it."""

    id: str
    healthy: bool = True
    numa: tuple[int, ...] = ()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin wants to be asked."""

    pre_start: bool = False
    preferred: bool = False


class Prefer(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the plugin which ids it would take."""

    resource: str
    available: list[str]
    must_include: list[str]
    size: int


class Allocate(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the plugin what a container needs that holds these ids."""

    resource: str
    ids: list[str]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin said: ids to a `Prefer`, a serialised ContainerAllocateResponse to an `Allocate`."""

    ids: tuple[str, ...] = ()
    response: bytes = b""


Steps = Generator[Prefer | Allocate, Answer, None]
Order = Callable[[Iterable[str]], list[str]]


class Choice:
    """Choosing the ids of one resource for one container."""

    def __init__(
        self,
        *,
        resource: str,
        count: int,
        devices: Mapping[str, Device],
        free: frozenset[str],
        asks_plugin: bool,
        numa: frozenset[int] | None,
        order: Order,
    ) -> None:
        self._resource = resource
        self._count = count
        self._devices = devices
        self._free = free
        self._asks_plugin = asks_plugin
        self._numa = numa
        self._order = order
        self._taken: list[str] = []

    def run(self, reusable: frozenset[str]) -> Generator[Prefer | Allocate, Answer, list[str]]:
        """Choose; an `AdmissionError` says why that can't be."""
        if self._take(reusable):
            return self._taken
        if len(self._free) < self._missing:
            raise AdmissionError(f"{self._missing} more of {self._resource} asked, {len(self._free)} free")
        aligned = self._aligned()
        if self._missing < len(aligned):
            yield from self._take_preferred(aligned)
            self._take(aligned)
        elif not self._take(aligned):
            yield from self._take_preferred(self._free)
            self._take(self._unaligned())
            self._take(self._free)
        return self._taken

    @property
    def _missing(self) -> int:
        return self._count - len(self._taken)

    def _take(self, ids: Collection[str]) -> bool:
        """Take as many as are missing; whether that is all."""
        fresh = [one for one in self._order(ids) if one not in self._taken]
        self._taken += fresh[: self._missing]
        return self._missing == 0

    def _take_preferred(self, among: frozenset[str]) -> Steps:
        if not self._asks_plugin:
            return
        answer = yield Prefer(
            resource=self._resource,
            available=self._order(among | frozenset(self._taken)),
            must_include=self._order(self._taken),
            size=self._count,
        )
        self._take(among.intersection(answer.ids))

    def _aligned(self) -> frozenset[str]:
        wanted = self._numa
        if wanted is None:
            return frozenset()
        return frozenset(one for one in self._free if wanted.intersection(self._devices[one].numa))

    def _unaligned(self) -> frozenset[str]:
        """Where alignment is asked: ids of a wrong NUMA node come before those of none."""
        if self._numa is None:
            return frozenset()
        return frozenset(one for one in self._free if self._devices[one].numa)
