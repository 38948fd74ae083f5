"""Who holds which device ids, and what the plugin answered when it gave them out. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

# The kubelet's number for "the plugin named no NUMA node".
NO_NUMA = -1


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of one resource that one container holds, and the plugin's answer, serialised."""

    ids_by_numa: dict[int, list[str]]
    answer: bytes

    @property
    def ids(self) -> frozenset[str]:
        """All ids, whatever their NUMA node."""
        return frozenset(one for ids in self.ids_by_numa.values() for one in ids)


class HoldingKey(msgspec.Struct, frozen=True, order=True):
    """Whose holding it is."""

    pod: str
    container: str
    resource: str


class Holdings:
    """The record of all holdings on the node."""

    def __init__(self) -> None:
        self._by_key: dict[HoldingKey, Holding] = {}

    def record(self, key: HoldingKey, holding: Holding) -> None:
        """Remember what a container was given."""
        self._by_key[key] = holding

    def get(self, key: HoldingKey) -> Holding | None:
        """What a container holds of a resource."""
        return self._by_key.get(key)

    def of(self, pod: str, container: str) -> dict[str, Holding]:
        """What a container holds, by resource."""
        return {key.resource: held for key, held in self if (key.pod, key.container) == (pod, container)}

    def pods(self) -> frozenset[str]:
        """Everybody who holds something."""
        return frozenset(key.pod for key in self._by_key)

    def in_use(self, resource: str) -> frozenset[str]:
        """All ids of a resource that somebody holds."""
        return frozenset(one for key, held in self if key.resource == resource for one in held.ids)

    def resources(self) -> frozenset[str]:
        """All resources of which somebody holds something."""
        return frozenset(key.resource for key in self._by_key)

    def free_all_but(self, active: Collection[str]) -> frozenset[str]:
        """Forget pods that have ended; who they were."""
        ended = self.pods() - frozenset(active)
        for key in [key for key in self._by_key if key.pod in ended]:
            del self._by_key[key]
        return ended

    def __iter__(self) -> Iterator[tuple[HoldingKey, Holding]]:
        return iter(self._by_key.items())

    def __len__(self) -> int:
        return len(self._by_key)
