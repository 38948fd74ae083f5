"""Who holds what of each GPU: pods that were granted, reservations on their way, and binds whose end is not known."""

from __future__ import annotations

from collections.abc import Mapping

from aliquot_core.claims import NOTHING, Claim

# A GPU by its node and uuid: simulated ones of two nodes may bear the same.
GpuKey = tuple[str, str]


class Holdings:
    """Claims by GPU and by holder; a holder's claims are replaced as a whole."""

    def __init__(self) -> None:
        self._by_holder: dict[str, dict[GpuKey, Claim]] = {}
        self._by_gpu: dict[GpuKey, dict[str, Claim]] = {}

    def put(self, holder: str, claims: Mapping[GpuKey, Claim]) -> set[GpuKey]:
        """Let a holder hold exactly this; which GPUs are to be counted anew."""
        before = self._by_holder.get(holder, {})
        if before == claims:
            return set()
        for gpu in before:
            self._forget(gpu, holder)
        for gpu, claim in claims.items():
            self._by_gpu.setdefault(gpu, {})[holder] = claim
        if claims:
            self._by_holder[holder] = dict(claims)
        else:
            self._by_holder.pop(holder, None)
        return before.keys() | claims.keys()

    def of(self, holder: str) -> Mapping[GpuKey, Claim]:
        """What one holder has."""
        return self._by_holder.get(holder, {})

    def on(self, gpu: GpuKey) -> Mapping[str, Claim]:
        """Who holds a part of a GPU."""
        return self._by_gpu.get(gpu, {})

    def total(self, gpu: GpuKey, *, but: str = "") -> tuple[Claim, int]:
        """What is held of a GPU, and by how many; `but` is one who is not counted."""
        total, holders = NOTHING, 0
        for holder, claim in self.on(gpu).items():
            if holder != but:
                total, holders = total.beside(claim), holders + 1
        return total, holders

    def everything(self) -> Mapping[str, Mapping[GpuKey, Claim]]:
        """All claims by holder."""
        return self._by_holder

    def _forget(self, gpu: GpuKey, holder: str) -> None:
        holders = self._by_gpu[gpu]
        del holders[holder]
        if not holders:
            del self._by_gpu[gpu]
