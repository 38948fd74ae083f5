"""Into which instances of MIG the cards that can be simulated may be cut, by NVIDIA's names: `3g.40gb+2x1g.10gb`.

The compute of such a card is seven slices and its memory eight; an A30 has four of both. An instance takes slices of
both, and what is left of one without the other is nobody's: beside two `3g` there is no memory for a `1g`.
"""

from __future__ import annotations

import re

import msgspec

from aliquot_core.errors import UserError

# Of memory, an instance takes so many slices, by those of compute.
_MEMORY_SLICES = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
_BY_80 = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
# By the card's key; the last is the whole card.
_KINDS = {
    "A30": ("1g.6gb", "2g.12gb", "4g.24gb"),
    "A100-40GB": ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "A100-80GB": _BY_80,
    "A100-80GB-PCIe": _BY_80,
    "H20": ("1g.12gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    "H100-80GB": _BY_80,
    "H200": ("1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    "B200": ("1g.23gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
}
_PART = re.compile(r"(?:(?P<count>[1-7])x)?(?P<kind>[1-7]g\.[0-9]{1,3}gb)")


class CutError(UserError):
    """A card can't be cut so."""


class KnownInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance, by its name and its slices of the card's."""

    kind: str
    slices: int
    memory_slices: int
    of_card: int
    of_memory: int


def read_cut(text: str, *, card: str) -> tuple[KnownInstance, ...]:
    """The instances of a card of that key, as they are written."""
    kinds = _kinds(card)
    found: list[KnownInstance] = []
    for part in text.lower().split("+"):
        match = _PART.fullmatch(part.strip())
        if match is None or match["kind"] not in kinds:
            raise CutError(
                f"{part[:40]!r} is no instance of it",
                where=card,
                remedy=f"write some of {', '.join(kinds)}, joined by +",
            )
        found += [kinds[match["kind"]]] * int(match["count"] or 1)
    _check_fit(found, card=card)
    return tuple(found)


def _kinds(card: str) -> dict[str, KnownInstance]:
    names = _KINDS.get(card)
    if names is None:
        raise CutError("it has no MIG, or is not known to have", where=card, remedy=f"known: {', '.join(_KINDS)}")
    whole = int(names[-1][0])
    return {
        name: KnownInstance(
            kind=name,
            slices=int(name[0]),
            memory_slices=_MEMORY_SLICES[int(name[0])],
            of_card=whole,
            of_memory=_MEMORY_SLICES[whole],
        )
        for name in names
    }


def _check_fit(instances: list[KnownInstance], *, card: str) -> None:
    compute, memory = sum(one.slices for one in instances), sum(one.memory_slices for one in instances)
    of = instances[0]
    if compute > of.of_card or memory > of.of_memory:
        raise CutError(
            f"they take {compute} of {of.of_card} slices of compute and {memory} of {of.of_memory} of memory",
            where=card,
            remedy="write fewer or smaller ones",
        )
