"""Who holds what of each GPU: pods that were granted, reservations on their way, and binds whose end is not known.

Room that is made for somebody is kept beside that: those who are to go hold it still, so both together may be more than
a GPU has. It counts like what is held, and nobody is said to hold it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aliquot_core.claims import NOTHING, Claim
from aliquot_core.quantities import MiB, Percent

# A GPU by its node and uuid: simulated ones of two nodes may bear the same.
GpuKey = tuple[str, str]


class Holdings:
    """Claims by GPU and by holder; a holder's claims are replaced as a whole."""

    def __init__(self) -> None:
        self._by_holder: dict[str, dict[GpuKey, Claim]] = {}
        self._by_gpu: dict[GpuKey, dict[str, Claim]] = {}
        self._by_node: dict[str, set[GpuKey]] = {}
        self._kept: dict[GpuKey, dict[str, Claim]] = {}
        self._kept_for: dict[str, tuple[GpuKey, ...]] = {}

    def put(self, holder: str, claims: Mapping[GpuKey, Claim]) -> set[GpuKey]:
        """Let a holder hold exactly this; which GPUs are to be counted anew."""
        before = self._by_holder.get(holder, {})
        if before == claims:
            return set()
        for gpu in before:
            self._forget(gpu, holder)
        for gpu, claim in claims.items():
            self._by_gpu.setdefault(gpu, {})[holder] = claim
            self._by_node.setdefault(gpu[0], set()).add(gpu)
        if claims:
            self._by_holder[holder] = dict(claims)
        else:
            self._by_holder.pop(holder, None)
        return before.keys() | claims.keys()

    def keep(self, whom: str, claims: Mapping[GpuKey, Claim]) -> set[GpuKey]:
        """Keep exactly this for somebody; which GPUs are to be counted anew."""
        before = self._kept_for.pop(whom, ())
        for gpu in before:
            del self._kept[gpu][whom]
            if not self._kept[gpu]:
                del self._kept[gpu]
        for gpu, claim in claims.items():
            self._kept.setdefault(gpu, {})[whom] = claim
        if claims:
            self._kept_for[whom] = tuple(claims)
        return {*before, *claims}

    def kept(self, gpu: GpuKey) -> Mapping[str, Claim]:
        """What is kept of a GPU, and for whom."""
        return self._kept.get(gpu, {})

    def of(self, holder: str) -> Mapping[GpuKey, Claim]:
        """What one holder has."""
        return self._by_holder.get(holder, {})

    def on(self, gpu: GpuKey) -> Mapping[str, Claim]:
        """Who holds a part of a GPU."""
        return self._by_gpu.get(gpu, {})

    def gpus(self, node: str) -> Collection[GpuKey]:
        """Those of a node of which anybody holds a part, be they there or not."""
        return self._by_node.get(node, ())

    def total(self, gpu: GpuKey, *, but: Collection[str] = ()) -> tuple[Claim, int]:
        """What is held of a GPU or kept for others, and by how many; `but` are holders who are not counted."""
        # In plain numbers: it is asked of each GPU of a node for every pod, and claims are made of three objects each.
        compute = memory = holders = 0
        closes = False
        for there in (self._by_gpu.get(gpu), self._kept.get(gpu)):
            for holder, claim in there.items() if there else ():
                if holder not in but:
                    compute += claim.compute.value
                    memory += claim.memory.value
                    closes |= claim.closes
                    holders += 1
        if not holders:
            return NOTHING, 0
        return Claim(compute=Percent(compute), memory=MiB(memory), closes=closes), holders

    def everything(self) -> Mapping[str, Mapping[GpuKey, Claim]]:
        """All claims by holder."""
        return self._by_holder

    def _forget(self, gpu: GpuKey, holder: str) -> None:
        holders = self._by_gpu[gpu]
        del holders[holder]
        if not holders:
            del self._by_gpu[gpu]
            self._by_node[gpu[0]].discard(gpu)
            if not self._by_node[gpu[0]]:
                del self._by_node[gpu[0]]
