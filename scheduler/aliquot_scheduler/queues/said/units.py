"""Amounts as people read them: a number with its unit, and what it is of.

Queues count percent, MiB, thousandths of a CPU core and bytes; nobody reads the last two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, Dimensions

_MEBI = 2**20
_MILLI = 1000
# Of many so many are named.
_NAMED = 3


def bare(amount: int, dimension: int, *, of: Dimensions) -> str:
    """`60 %`, `8000 MiB`, `1.5 cores`."""
    if dimension < of.cards:
        return f"{amount} {'%' if dimension % 2 == COMPUTE else 'MiB'}"
    if dimension == of.cards:
        return f"{amount / _MILLI:g} {'core' if amount == _MILLI else 'cores'}"
    return f"{round(amount / _MEBI)} MiB"


def spoken(amount: int, dimension: int, *, of: Dimensions) -> str:
    """`60 % of compute`, `8000 MiB of memory of *H100*`, `1.5 cores of CPU`."""
    return f"{bare(amount, dimension, of=of)} of {of.names[dimension]}"


def slices(amounts: Sequence[int], *, of: Dimensions) -> str:
    """What is asked of GPUs, in compute and memory; what is nothing is left out."""
    return " and ".join(spoken(amounts[dim], dim, of=of) for dim in (COMPUTE, MEMORY) if amounts[dim])


def of_whom(parts: Mapping[str, int], dimension: int, *, of: Dimensions) -> str:
    """` (a 60 %, b 30 %, 2 more)`: which queues have how much, those first that have most; nothing if none has."""
    largest = sorted(parts.items(), key=lambda part: (-part[1], part[0]))
    said = [f"{name} {bare(amount, dimension, of=of)}" for name, amount in largest]
    more = len(said) - _NAMED
    listed = ", ".join([*said[:_NAMED], *([f"{more} more"] if more > 0 else [])])
    return f" ({listed})" if said else ""
