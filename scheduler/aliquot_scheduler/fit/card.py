"""One GPU that a pod may have, while its containers are laid: what others hold of it, and what they were given."""

from __future__ import annotations

from dataclasses import dataclass

from aliquot_core.claims import Claim
from aliquot_core.inventory import Gpu, Health
from aliquot_core.quantities import WHOLE
from aliquot_core.request_notes import Placement
from aliquot_scheduler.fit.appraisal import Lost
from aliquot_scheduler.fit.cost import DEGRADED, WORST, instance_cost
from aliquot_scheduler.fit.demand import Piece


@dataclass(kw_only=True, eq=False)
class Card:
    """A GPU that the pod allows, with what others hold of it and what this pod's containers were given so far."""

    gpu: Gpu
    held: Claim
    holders: int
    compute: int = 0
    memory: int = 0
    parts: int = 0
    whole: bool = False
    # What taking so much of it loses, if that is how the pod is placed.
    lost: Lost | None = None

    def untouched(self) -> Card:
        """The same GPU before anything of this pod lay there."""
        return Card(gpu=self.gpu, held=self.held, holders=self.holders, lost=self.lost)

    @property
    def free(self) -> tuple[int, int, bool]:
        """Percent and MiB that nobody holds, this pod neither, and whether several may lie there."""
        if self.held.closes or self.whole:
            return 0, 0, False
        compute = self.gpu.compute.value - self.held.compute.value - self.compute
        memory = self.gpu.usable.value - self.held.memory.value - self.memory
        return compute, memory, self.gpu.instance is None

    def takes(self, piece: Piece) -> bool:
        """Whether a piece has room here beside all that is held."""
        if self.held.closes or self.whole or (piece.whole and (self.holders or self.parts)):
            return False
        return min(self._left(piece)) >= 0

    def give(self, piece: Piece) -> None:
        """Let a container hold a piece here."""
        taken = piece.claim_on(self.gpu)
        self.compute += taken.compute.value
        self.memory += taken.memory.value
        self.parts += 1
        self.whole |= taken.closes

    def cost(self, piece: Piece, placement: Placement) -> float:
        """As `worth.loss` says it of all GPUs at once, or `cost.leftover` and `cost.wanted`."""
        if self.gpu.instance:
            own = float(instance_cost(self.gpu.compute.value, self.gpu.usable.value))
            return own + WORST * (self.gpu.health is Health.DEGRADED)
        compute, memory = self._left(piece)
        if self.lost is not None:
            taken = piece.compute, piece.memory_on(self.gpu.usable.value)
            lost = self.lost(compute=compute + taken[0], memory=memory + taken[1], taken=taken)
            return lost + WORST * (self.gpu.health is Health.DEGRADED)
        left = max(compute / WHOLE.value, memory / max(1, self.gpu.usable.value))
        wanted = 1.0 - left if placement is Placement.SPREAD else left
        return wanted + DEGRADED * (self.gpu.health is Health.DEGRADED)

    def _left(self, piece: Piece) -> tuple[int, int]:
        usable = self.gpu.usable.value
        compute = self.gpu.compute.value - self.held.compute.value - self.compute - piece.compute
        return compute, usable - self.held.memory.value - self.memory - piece.memory_on(usable)
