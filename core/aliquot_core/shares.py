"""How one container's slice is divided over several GPUs.

Up to 100 % it lies on one GPU. Above, it takes whole GPUs first and the rest of one more (250 → 100/100/50), and memory
is divided as compute is, rounded up to whole MiB. `gpus: N` divides both evenly, remainders to the first. Rounding up
never gives a container less than it asked for.
"""

from __future__ import annotations

import msgspec

from aliquot_core.quantities import WHOLE, MiB, Percent


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a container asks of one of its GPUs; `memory` is None where compute's share of the card is meant."""

    compute: Percent
    limit: Percent
    memory: MiB | None


def divide(*, compute: Percent, limit: Percent, memory: MiB | None, gpus: int | None) -> tuple[Share, ...]:
    """Divide a slice over its GPUs; the caller has checked that the numbers fit each other."""
    computes = _evenly(compute.value, gpus) if gpus else _whole_first(compute.value)
    limits = _evenly(limit.value, gpus) if gpus else _limits(computes, limit.value)
    memories = _memories(memory, computes=computes, gpus=gpus)
    return tuple(
        Share(compute=Percent(part), limit=Percent(most), memory=held)
        for part, most, held in zip(computes, limits, memories, strict=True)
    )


def memory_of(compute: Percent, *, card: MiB) -> MiB:
    """Compute's share of a card's memory, for a slice that leaves memory out.

    Rounded down, so that the shares of 100 slices of 1 % fit on the card together; never nothing.
    """
    return MiB(max(1, card.value * compute.value // WHOLE.value))


def _whole_first(compute: int) -> list[int]:
    whole, rest = divmod(compute, WHOLE.value)
    return [WHOLE.value] * whole + ([rest] if rest or not whole else [])


def _limits(computes: list[int], limit: int) -> list[int]:
    """Whole GPUs can't burst; what the limit grants above the request goes to the GPU that is shared."""
    spare = limit - sum(computes)
    return [min(WHOLE.value, part + spare) for part in computes]


def _evenly(total: int, parts: int) -> list[int]:
    each, rest = divmod(total, parts)
    return [each + 1] * rest + [each] * (parts - rest)


def _memories(memory: MiB | None, *, computes: list[int], gpus: int | None) -> list[MiB | None]:
    if memory is None:
        return [None] * len(computes)
    if gpus:
        return [MiB(part) for part in _evenly(memory.value, gpus)]
    total = sum(computes)
    if not total:
        return [memory]
    return [MiB(-(-memory.value * part // total)) for part in computes]
