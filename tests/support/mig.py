"""Instances of MIG as a node's inventory has them."""

from __future__ import annotations

from aliquot_core.inventory import Gpu, Instance

CARD = "NVIDIA A100-SXM4-80GB"
# Percent of the card and MiB, by the name of the kind.
KINDS = {
    "1g.10gb": (14, 9_728),
    "1g.20gb": (14, 19_968),
    "2g.20gb": (28, 19_968),
    "3g.40gb": (42, 40_192),
    "4g.40gb": (57, 40_192),
    "7g.80gb": (100, 80_896),
}


def instances(node: str, *kinds: str, card: int = 0) -> tuple[Gpu, ...]:
    """The instances of one card, in the driver's order."""
    return tuple(
        Gpu(
            uuid=f"MIG-{node}-{card}-{number}",
            index=card,
            model=f"{CARD} MIG {kind}",
            memory=KINDS[kind][1],
            minor=card,
            isolation=["mig"],
            instance=Instance(
                parent=f"GPU-{node}-{card}", gpu_instance=number + 7, compute_instance=0, compute=KINDS[kind][0]
            ),
        )
        for number, kind in enumerate(kinds)
    )
