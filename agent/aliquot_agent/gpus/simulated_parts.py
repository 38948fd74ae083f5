"""What a simulated card is cut into, in MIG mode. Pure."""

from __future__ import annotations

import uuid as uuids

import msgspec

from aliquot_agent.gpus.known_models import KnownModel
from aliquot_agent.gpus.model import GpuFacts, InstanceFacts


def parts_of(card: GpuFacts, *, model: KnownModel) -> tuple[GpuFacts, ...]:
    """The instances of a card, each with its part of what that can grant; the same always have the same uuid."""
    of = uuids.UUID(card.uuid.removeprefix("GPU-"))
    return tuple(
        msgspec.structs.replace(
            card,
            uuid=f"MIG-{uuids.uuid5(of, str(number))}",
            model=f"{card.model} MIG {one.kind}",
            memory_total_mib=card.memory_usable_mib * one.memory_slices // one.of_memory,
            memory_reserved_mib=0,
            mig_enabled=False,
            mig_wanted=False,
            links={},
            instance=InstanceFacts(
                parent=card.uuid,
                # The driver's numbers of small ones begin with 7; those below are of larger ones.
                gpu_instance=7 + number,
                compute_instance=0,
                of_card=one.of_card,
                slices=one.slices,
                used_slices=one.slices,
            ),
        )
        for number, one in enumerate(model.instances)
    )
