"""What goes with a guarantee in the dimensions of which a queue says nothing.

Pods take compute and memory, and a queue may speak of one of them alone. By hand, of what goes with what is said:

1. With a percent of compute goes a hundredth of the **largest card's** memory, and with memory as much compute as it is
   of the largest card. So two cards' compute bring two cards' memory, whichever cards they are.
2. A queue that speaks of models alone is due of all cards what it is due of those models.
3. Of a model of which it says nothing it is due what it is due of all cards, if it speaks of those; else what it is due
   of models that are cards of that one too.

That is not guaranteed: nothing is held back for it. It is how much a queue's pods may take of such a dimension without
borrowing, and the most that those take of it who are never evicted.

What is reserved (`lendingLimit`) is of use only with the rest of a card. So who keeps compute idle and says nothing of
memory's guarantee keeps as large a part of all memory, and the other way round. That is guaranteed and held back, as
far as it is there beside what is reserved in so many words: if it is not, what only goes along is cut in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot_core.quantities import WHOLE
from aliquot_scheduler.queues.said.spec import Quota
from aliquot_scheduler.queues.said.things import Kinds, patterns_of


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """By pattern of models: the largest card's memory in MiB, compute and memory of all cards, and their kinds."""

    largest: Mapping[str, int] = {}
    there: Mapping[str, tuple[int, int]] = {}
    kinds: Kinds = {}


def memory_with(compute: int, *, largest: int) -> int:
    """What goes with so much compute; each percent rounded up, as each of many slices may be."""
    return compute * -(-largest // WHOLE.value)


def compute_with(memory: int, *, largest: int) -> int:
    """What goes with so much memory; without any card nothing does."""
    return -(-memory * WHOLE.value // largest) if largest else 0


def with_reservations(
    written: Mapping[str, Sequence[Quota]],
    *,
    children: Mapping[str, Sequence[str]],
    patterns: Sequence[str],
    hardware: Hardware,
) -> dict[str, list[Quota]]:
    """All queues' quotas of GPUs (parents come first), with what reservations take along with them."""
    found = {name: list(quotas) for name, quotas in written.items()}
    for at, pattern in enumerate(patterns):
        pair = slice(2 * at, 2 * at + 2)
        there = hardware.there.get(pattern, (0, 0))
        of_pair = {name: (quotas[pair][0], quotas[pair][1]) for name, quotas in written.items()}
        wished = {name: along_with(*quotas, there=there) for name, quotas in of_pair.items()}
        for kind in range(2):
            told = _kept_of_all({name: kept_of(quotas[kind]) for name, quotas in of_pair.items()}, children=children)
            both = {name: kept_of(quotas[kind]) + wished[name][kind] for name, quotas in of_pair.items()}
            more, left = _kept_of_all(both, children=children) - told, max(0, there[kind] - told)
            for name, quotas in found.items():
                part = wished[name][kind] * left // more if more > left else wished[name][kind]
                quotas[2 * at + kind] = _reserving(quotas[2 * at + kind], part)
    return found


def along_with(compute: Quota, memory: Quota, *, there: tuple[int, int]) -> tuple[int, int]:
    """How much of both a reservation of the other one takes along, if no guarantee of that is said."""
    if is_silent(memory) and (kept := kept_of(compute)):
        return 0, kept * there[1] // there[0] if there[0] else 0
    if is_silent(compute) and (kept := kept_of(memory)):
        return kept * there[0] // there[1] if there[1] else 0, 0
    return 0, 0


def _kept_of_all(kept: dict[str, int], *, children: Mapping[str, Sequence[str]]) -> int:
    """What is kept for a queue is kept for those below it, and counts once."""
    found: dict[str, int] = {}
    for name in reversed(kept):
        found[name] = max(kept[name], sum(found[child] for child in children[name]))
    return found[next(iter(kept))]


def is_silent(quota: Quota) -> bool:
    """Whether nothing is said of what is guaranteed, or kept of that."""
    return quota.guarantee is None and quota.lending_limit is None


def kept_of(quota: Quota) -> int:
    """What a queue keeps of its guarantee even when idle; a limit below that comes first."""
    if quota.guarantee is None or quota.lending_limit is None:
        return 0
    due = quota.guarantee if quota.limit is None else min(quota.guarantee, quota.limit)
    return max(0, due - quota.lending_limit)


def _reserving(quota: Quota, more: int) -> Quota:
    return msgspec.structs.replace(quota, guarantee=more, lending_limit=0) if more else quota


def dues_of(
    guarantee: Sequence[int], said: Sequence[bool], *, models: Sequence[str], hardware: Hardware
) -> tuple[int, ...]:
    """Of compute and memory, and both again of each model; `said` is of which of them the queue says anything."""
    patterns = patterns_of(models)
    pairs = [
        _pair(guarantee[at : at + 2], said[at : at + 2], largest=hardware.largest.get(pattern, 0))
        for at, pattern in zip(range(0, 2 * len(patterns), 2), patterns, strict=True)
    ]
    own = {model: pair for model, pair in zip(models, pairs[1:], strict=True) if pair is not None}
    found = [pairs[0] if pairs[0] is not None else _summed(list(own.values()))]
    for model, pair in zip(models, pairs[1:], strict=True):
        kinds = hardware.kinds.get(model, frozenset())
        shared = [due for other, due in own.items() if kinds & hardware.kinds.get(other, frozenset())]
        found.append(pair if pair is not None else pairs[0] if pairs[0] is not None else _summed(shared))
    return tuple(part for pair in found for part in pair)


_Pair = tuple[int, int]


def _pair(guarantee: Sequence[int], said: Sequence[bool], *, largest: int) -> _Pair | None:
    """Compute and memory; None if nothing is said of either."""
    compute, memory = guarantee
    if not any(said):
        return None
    if not said[1]:
        memory = memory_with(compute, largest=largest)
    elif not said[0]:
        compute = compute_with(memory, largest=largest)
    return compute, memory


def _summed(pairs: Sequence[_Pair]) -> _Pair:
    return sum(compute for compute, _ in pairs), sum(memory for _, memory in pairs)
