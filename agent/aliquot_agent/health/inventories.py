"""From what the driver says to what the node publishes: GPUs that were seen once stay, sick if they can't be used.

A lost GPU that simply left the list would take its device ids with it, and the kubelet would forget who holds them. So
it stays, with what was last known of it, until it answers again.

A GPU in MIG mode is not in the list, its instances are: those that an operator takes away leave it at once, for the
driver lets nobody take away one that is in use. They are as well as their GPU. One that is in MIG mode and has none is
there, sick, with what is to be done.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import msgspec

from aliquot_agent.gpus.model import Discovery, DriverFacts, GpuFacts
from aliquot_agent.health.ailments import Book, Verdict, worse
from aliquot_agent.health.judging import looked
from aliquot_agent.isolation.offering import Offered
from aliquot_core.inventory import Gpu, Health, Instance, Inventory

ALL_OBSERVED: Mapping[str, Offered] = MappingProxyType({})
_UNTOLD: Mapping[str, int | None] = MappingProxyType({})


class Cards(msgspec.Struct, frozen=True, kw_only=True):
    """Every GPU ever seen by this agent, and how each of them is."""

    driver: DriverFacts | None = None
    gpus: dict[str, GpuFacts] = {}
    book: Book = Book()
    # What is wrong with the driver as a whole, and that in one word.
    problem: str = ""
    kind: str = ""


def seen(cards: Cards, discovery: Discovery, *, now: float) -> Cards:
    """Take in what the driver says now."""
    told = {gpu.uuid: gpu for gpu in discovery.gpus}
    silent = {problem.uuid for problem in discovery.problems}
    kept = {uuid: gpu for uuid, gpu in cards.gpus.items() if not _is_taken_away(gpu, told=told, silent=silent)}
    gpus = kept | told
    vanished = {uuid for uuid, gpu in gpus.items() if uuid not in told and gpu.instance is None}
    return Cards(
        driver=discovery.driver, gpus=gpus, book=looked(cards.book, discovery, vanished=sorted(vanished), now=now)
    )


def _is_taken_away(gpu: GpuFacts, *, told: Mapping[str, GpuFacts], silent: Collection[str | None]) -> bool:
    """An instance that its GPU, which answers, does not tell of any more."""
    if gpu.instance is None or gpu.uuid in told:
        return False
    return gpu.instance.parent in told and gpu.instance.parent not in silent


def failed(cards: Cards, *, reason: str, kind: str = "failed") -> Cards:
    """Take in that the driver as a whole does not work."""
    return msgspec.structs.replace(cards, problem=reason, kind=kind)


def inventory(
    cards: Cards,
    *,
    outside: str = "",
    isolation: Mapping[str, Offered] = ALL_OBSERVED,
    contexts: Mapping[str, int | None] = _UNTOLD,
) -> Inventory:
    """What the node has, as it is published; `outside` is what keeps all of it from being given.

    `contexts` is what a CUDA context takes of each GPU, in MiB, if known.
    """
    problem = cards.problem or outside
    cut = {gpu.instance.parent for gpu in cards.gpus.values() if gpu.instance}
    gpus = tuple(
        _gpu(
            facts,
            verdict=_verdict(facts, cards=cards, problem=problem),
            isolation=isolation.get(facts.uuid, Offered()),
            context=contexts.get(facts.uuid),
        )
        for facts in sorted(cards.gpus.values(), key=_place)
        if not (facts.mig_enabled and facts.uuid in cut)
    )
    return Inventory(
        driver=cards.driver.driver_version if cards.driver else "",
        cuda=(cards.driver.cuda_version or "") if cards.driver else "",
        gpus=gpus,
        problem=problem,
    )


def verdict(facts: GpuFacts, *, cards: Cards) -> Verdict:
    """How a GPU is by what happened to it; an instance is no better than its GPU."""
    own = cards.book.of(facts.uuid)
    if facts.instance is None:
        return own
    card = cards.book.of(facts.instance.parent)
    return worse(own, msgspec.structs.replace(card, reason=card.reason and f"its GPU is {card.health}: {card.reason}"))


def _place(gpu: GpuFacts) -> tuple[int, int, str]:
    return gpu.index, gpu.instance.gpu_instance if gpu.instance else -1, gpu.uuid


def _verdict(facts: GpuFacts, *, cards: Cards, problem: str) -> Verdict:
    """What keeps all GPUs from being given goes before what is the matter with one, and that before its mode."""
    if problem:
        return Verdict(health=Health.SICK, reason=problem)
    found = verdict(facts, cards=cards)
    if found.health is not Health.SICK and (reason := _why_not_cut_so(facts, cards=cards)):
        return Verdict(health=Health.SICK, reason=reason)
    return found


def _why_not_cut_so(facts: GpuFacts, *, cards: Cards) -> str:
    """What of its MIG mode keeps it from being given; empty if nothing does."""
    one = facts.instance
    card = cards.gpus.get(one.parent, facts) if one else facts
    if card.mig_enabled is not card.mig_wanted:
        now, then = ("on", "off") if card.mig_enabled else ("off", "on")
        back = int(card.mig_enabled)
        return (
            f"MIG mode is {now}, and {then} after the next reset: reset the GPU (nvidia-smi -r), or take that back"
            f" (nvidia-smi -mig {back})"
        )
    if one is None:
        none = "MIG mode is on and there are no instances: make them (nvidia-smi mig -cgi … -C), or switch it off"
        return f"{none} (nvidia-smi -mig 0)" if facts.mig_enabled else ""
    if one.used_slices < one.slices:
        return (
            f"its compute instance has {one.used_slices} of the {one.slices} slices of its GPU instance, and is given"
            " only with all of them: make one of all (nvidia-smi mig -dci, then -cci)"
        )
    return ""


def _gpu(facts: GpuFacts, *, verdict: Verdict, isolation: Offered, context: int | None) -> Gpu:
    return Gpu(
        uuid=facts.uuid,
        index=facts.index,
        model=facts.model,
        memory=facts.memory_usable_mib,
        capability=facts.compute_capability,
        pci=facts.pci_bus_id,
        minor=facts.minor,
        numa=facts.numa_node,
        mig=facts.mig_enabled,
        instance=_instance(facts),
        links=facts.links,
        health=verdict.health,
        reason=verdict.reason,
        failing=verdict.failing,
        isolation=list(isolation.modes),
        isolation_lack=isolation.lack,
        context=context,
    )


def _instance(facts: GpuFacts) -> Instance | None:
    if (one := facts.instance) is None:
        return None
    return Instance(
        parent=one.parent,
        gpu_instance=one.gpu_instance,
        compute_instance=one.compute_instance,
        compute=one.compute,
    )
