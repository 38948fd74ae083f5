"""From what the driver says to what the node publishes: GPUs that were seen once stay, sick if they can't be used.

A lost GPU that simply left the list would take its device ids with it, and the kubelet would forget who holds them. So
it stays, with what was last known of it, until it answers again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from aliquot_agent.gpus.model import Discovery, DriverFacts, GpuFacts
from aliquot_agent.health.ailments import Book, Verdict
from aliquot_agent.health.judging import looked
from aliquot_agent.isolation.offering import Offered
from aliquot_core.inventory import Gpu, Health, Inventory

ALL_OBSERVED: Mapping[str, Offered] = MappingProxyType({})


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
    gpus = cards.gpus | {gpu.uuid: gpu for gpu in discovery.gpus}
    vanished = gpus.keys() - {gpu.uuid for gpu in discovery.gpus}
    return Cards(
        driver=discovery.driver, gpus=gpus, book=looked(cards.book, discovery, vanished=sorted(vanished), now=now)
    )


def failed(cards: Cards, *, reason: str, kind: str = "failed") -> Cards:
    """Take in that the driver as a whole does not work."""
    return msgspec.structs.replace(cards, problem=reason, kind=kind)


def inventory(cards: Cards, *, outside: str = "", isolation: Mapping[str, Offered] = ALL_OBSERVED) -> Inventory:
    """What the node has, as it is published; `outside` is what keeps all of it from being given."""
    problem = cards.problem or outside
    gpus = tuple(
        _gpu(
            facts, verdict=_verdict(facts, cards=cards, problem=problem), isolation=isolation.get(facts.uuid, Offered())
        )
        for facts in sorted(cards.gpus.values(), key=lambda gpu: (gpu.index, gpu.uuid))
    )
    return Inventory(
        driver=cards.driver.driver_version if cards.driver else "",
        cuda=(cards.driver.cuda_version or "") if cards.driver else "",
        gpus=gpus,
        problem=problem,
    )


def _verdict(facts: GpuFacts, *, cards: Cards, problem: str) -> Verdict:
    """What keeps all GPUs from being given goes before what is the matter with one."""
    if problem:
        return Verdict(health=Health.SICK, reason=problem)
    own = cards.book.of(facts.uuid)
    if own.health is not Health.SICK and facts.mig_enabled:
        reason = "MIG mode is on, and slices of MIG instances are not given yet; switch it off (nvidia-smi -mig 0)"
        return Verdict(health=Health.SICK, reason=reason)
    return own


def _gpu(facts: GpuFacts, *, verdict: Verdict, isolation: Offered) -> Gpu:
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
        links=facts.links,
        health=verdict.health,
        reason=verdict.reason,
        isolation=list(isolation.modes),
        isolation_lack=isolation.lack,
    )
