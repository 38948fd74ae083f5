"""What each slice may have just now of what it was granted. Pure.

It is less where its pod holds itself back, and for best effort where memory lacks: where processes hold more of a GPU
than their slices, or hold it without one, what is granted there is not all there, and whoever asks last would be
refused. Best effort goes first: what it has not taken yet is lowered, in proportion, so that the others find theirs.

What must hold: never more than was granted, nor less than the floor, nor less memory for want of it than a slice
holds; nobody but best effort gives way; one sample takes nothing, nor does one of which anything is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from aliquot_agent.isolation.beyond import Excess, Whose
from aliquot_agent.web.accounts import SliceUse
from aliquot_core.modes import INTERPOSER
from aliquot_core.restraint import Restraint, out_of_bounds

# What processes hold is rounded up, and a driver takes a little for itself as they come.
_SPARE_MIB = 64


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """What a slice may have now: MiB, and up to how many percent it may burst."""

    memory: int
    limit: int


def whose(one: SliceUse) -> Whose:
    """Of whom it is."""
    return one.uid, one.container, one.gpu


def restrained(
    slices: Sequence[SliceUse], *, restraints: Mapping[str, Restraint], floor: Callable[[str], int]
) -> dict[Whose, Allowed]:
    """What is left of grants by what pods say of themselves (by UID); a container's GPUs each give their part."""
    memory, limit = _summed(slices, "memory_mib"), _summed(slices, "limit")
    found = {}
    for one in slices:
        said, container = restraints.get(one.uid, Restraint()), (one.uid, one.container)
        found[whose(one)] = Allowed(
            memory=min(one.memory_mib, max(floor(one.gpu), _part(one.memory_mib, said.memory, of=memory[container]))),
            limit=min(one.limit, max(one.compute, _part(one.limit, said.compute, of=limit[container]))),
        )
    return found


def bounded(slices: Sequence[SliceUse], said: Restraint, *, floor: Callable[[str], int]) -> str:
    """Which of what a pod says of these slices of one container is not to be had, and why; empty if all is."""
    memory, limit, compute = (sum(getattr(one, what) for one in slices) for what in ("memory_mib", "limit", "compute"))
    contexts = sum(floor(one.gpu) for one in slices)
    found = out_of_bounds(said, memory=memory, limit=limit, compute=compute, contexts=contexts)
    return ", ".join(filter(None, (found.memory, found.compute)))


def lacking(
    before: Excess, slices: Sequence[SliceUse], *, allowed: Mapping[Whose, Allowed], used: int | None, usable: int
) -> Excess:
    """How many MiB of what may still be taken of a GPU are not there, one sample later; `used` is by all processes."""
    if used is None or any(one.used_mib is None for one in slices):
        return Excess()
    own = {whose(one): min(one.used_mib or 0, one.memory_mib) for one in slices}
    promised = sum(max(allowed[name].memory, held) for name, held in own.items())
    return before.then(driver=promised + used - sum(own.values()), account=usable + _SPARE_MIB)


def given_way(
    slices: Sequence[SliceUse], *, allowed: Mapping[Whose, Allowed], lack: int, floor: Callable[[str], int]
) -> dict[Whose, Allowed]:
    """Those who have less by that: best effort on that GPU, as far as a limit holds it."""
    yields = [one for one in slices if not one.compute and one.isolation == INTERPOSER]
    spare = {whose(one): max(0, allowed[whose(one)].memory - max(floor(one.gpu), one.used_mib or 0)) for one in yields}
    whole = sum(spare.values())
    taken = min(lack, whole)
    return {
        name: msgspec.structs.replace(allowed[name], memory=allowed[name].memory - -(-part * taken // whole))
        for name, part in spare.items()
        if part and taken
    }


def _summed(slices: Iterable[SliceUse], what: str) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for one in slices:
        container = one.uid, one.container
        found[container] = found.get(container, 0) + getattr(one, what)
    return found


def _part(granted: int, said: int | None, *, of: int) -> int:
    """Its part of what is said of all of them, rounded up as grants are."""
    return granted if said is None else -(-granted * said // of)
