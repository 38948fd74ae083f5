"""From what the driver says to what the node publishes: GPUs that were seen once stay, sick if they can't be used.

A lost GPU that simply left the list would take its device ids with it, and the kubelet would forget who holds them. So
it stays, with what was last known of it, until it answers again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot_agent.gpus.model import Discovery, DriverFacts, Fault, GpuFacts, GpuProblem
from aliquot_core.inventory import Gpu, Health, Inventory

# Trouble with which a GPU still computes.
_HARMLESS = {Fault.UNWATCHED}


class Cards(msgspec.Struct, frozen=True, kw_only=True):
    """Every GPU ever seen by this agent, and what is the matter with some of them."""

    driver: DriverFacts | None = None
    gpus: dict[str, GpuFacts] = {}
    problems: dict[str, GpuProblem] = {}
    problem: str = ""


def seen(cards: Cards, discovery: Discovery) -> Cards:
    """Take in what the driver says now."""
    gpus = cards.gpus | {gpu.uuid: gpu for gpu in discovery.gpus}
    problems = {problem.uuid: problem for problem in discovery.problems if problem.uuid}
    answering = {gpu.uuid for gpu in discovery.gpus}
    for uuid in gpus.keys() - answering - problems.keys():
        problems[uuid] = GpuProblem(fault=Fault.LOST, uuid=uuid, index=None, what="the driver no longer lists this GPU")
    return Cards(driver=discovery.driver, gpus=gpus, problems=problems, problem="")


def failed(cards: Cards, *, reason: str) -> Cards:
    """Take in that the driver as a whole does not work."""
    return msgspec.structs.replace(cards, problem=reason)


def inventory(cards: Cards, *, outside: str = "", isolation: Mapping[str, list[str]] | None = None) -> Inventory:
    """What the node has, as it is published; `outside` is what keeps all of it from being given."""
    problem = cards.problem or outside
    modes = isolation or {}
    gpus = tuple(
        _gpu(facts, reason=problem or _reason(facts, cards=cards), isolation=modes.get(facts.uuid, ["observe"]))
        for facts in sorted(cards.gpus.values(), key=lambda gpu: (gpu.index, gpu.uuid))
    )
    return Inventory(
        driver=cards.driver.driver_version if cards.driver else "",
        cuda=(cards.driver.cuda_version or "") if cards.driver else "",
        gpus=gpus,
        problem=problem,
    )


def _reason(facts: GpuFacts, *, cards: Cards) -> str:
    problem = cards.problems.get(facts.uuid)
    if problem and problem.fault not in _HARMLESS:
        return problem.what
    if facts.mig_enabled:
        return "MIG mode is on, and slices of MIG instances are not given yet; switch it off (nvidia-smi -mig 0)"
    return ""


def _gpu(facts: GpuFacts, *, reason: str, isolation: list[str]) -> Gpu:
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
        health=Health.SICK if reason else Health.HEALTHY,
        reason=reason,
        isolation=isolation,
    )
