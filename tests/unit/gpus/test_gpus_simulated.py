"""What is special to simulated GPUs: names that stay, a virtual clock, commands that are refused."""

from __future__ import annotations

import asyncio

import pytest

from aliquot_agent.gpus.driver import NoGpuError
from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.model import EventKind, Fault
from aliquot_agent.gpus.simulated import SimulatedDriver, SimulationError, simulated_uuid
from aliquot_agent.health.inventories import Cards, inventory, seen
from support.clocks import VirtualClock


def _driver(clock: VirtualClock, *models: str, node: str = "node-1") -> SimulatedDriver:
    return SimulatedDriver(node=node, models=[KNOWN_MODELS[model] for model in models], clock=clock)


async def test_the_same_node_has_the_same_gpus() -> None:
    """Uuids depend on node and index alone: equal on every start, different everywhere else."""
    clock = VirtualClock()
    first = await _driver(clock, "T4", "T4").discover()
    again = await _driver(clock, "T4", "T4").discover()
    other = await _driver(clock, "T4", "T4", node="node-2").discover()
    assert first == again
    uuids = {gpu.uuid for gpu in (*first.gpus, *other.gpus)}
    assert len(uuids) == 4
    assert first.gpus[1].uuid == simulated_uuid(node="node-1", index=1)


async def test_eight_a100_are_joined_by_nvlink() -> None:
    """The cards of an NVLink node reach each other by as many links as the model has."""
    gpus = (await _driver(VirtualClock(), *["A100-80GB"] * 8).discover()).gpus
    assert all(set(gpu.links.values()) == {"NV12"} and len(gpu.links) == 7 for gpu in gpus)
    assert [gpu.numa_node for gpu in gpus] == [0] * 4 + [1] * 4


async def test_a_silent_gpu_takes_the_deadline_once_of_virtual_time() -> None:
    """The first question to a hanging GPU waits out the deadline by the clock; the next doesn't; then it recovers."""
    clock = VirtualClock()
    driver = _driver(clock, "T4", "T4")
    driver.slow(gpu=0, seconds=60)
    asking = asyncio.ensure_future(driver.usage())
    await clock.advance(4.9)
    assert not asking.done()
    await clock.advance(0.2)
    assert len(await asking) == 1
    again = asyncio.ensure_future(driver.usage())
    await clock.advance(0)
    assert len(await again) == 1
    driver.slow(gpu=0, seconds=0)
    assert len(await driver.usage()) == 2
    events = await driver.events(timeout_s=1)
    assert [event.kind for event in events] == [EventKind.SILENT, EventKind.RECOVERED]
    assert events[0].at == pytest.approx(1_000_005.0)


async def test_a_slow_call_within_the_deadline_is_only_slow() -> None:
    """A delay below the deadline takes its time and harms nothing."""
    clock = VirtualClock()
    driver = _driver(clock, "T4")
    driver.slow(gpu=0, seconds=2)
    asking = asyncio.ensure_future(driver.discover())
    await clock.advance(1.9)
    assert not asking.done()
    await clock.advance(0.2)
    assert (await asking).problems == ()


async def test_waiting_ends_with_the_clock() -> None:
    """Without events the wait is over when the virtual time is."""
    clock = VirtualClock()
    waiting = asyncio.ensure_future(_driver(clock, "T4").events(timeout_s=30))
    await clock.advance(29)
    assert not waiting.done()
    await clock.advance(2)
    assert await waiting == []


async def test_what_does_not_fit_is_refused() -> None:
    """A process can't have more than is free; what it has itself does not count against it."""
    driver = _driver(VirtualClock(), "T4")
    usable = (await driver.discover()).gpus[0].memory_usable_mib
    driver.start_process(gpu=0, pid=1, memory_mib=usable)
    driver.start_process(gpu=0, pid=1, memory_mib=usable - 1)
    with pytest.raises(SimulationError, match="2 MiB"):
        driver.start_process(gpu=0, pid=2, memory_mib=2)
    driver.start_process(gpu=0, pid=2, memory_mib=1)
    assert (await driver.usage())[0].memory_used_mib == usable


async def test_processes_end_with_their_gpu() -> None:
    """A lost GPU takes its processes with it; it comes back empty."""
    driver = _driver(VirtualClock(), "T4")
    driver.start_process(gpu=0, pid=1, memory_mib=100, sm_percent=40)
    driver.lose(gpu=0)
    assert await driver.usage() == ()
    assert (await driver.discover()).problems[0].fault is Fault.LOST
    driver.recover(gpu=0)
    assert (await driver.usage())[0].processes == ()


async def test_no_gpus_are_said() -> None:
    """A node simulated without GPUs answers as a real one without."""
    with pytest.raises(NoGpuError):
        await _driver(VirtualClock()).discover()


async def test_a_card_that_is_cut_tells_of_its_instances_as_a_driver_does() -> None:
    """Beside the card, each with its part of the memory; none is told to be how busy, and the card has no processes."""
    clock = VirtualClock()
    driver = SimulatedDriver(node="n", models=[KNOWN_MODELS["A100-80GB"].cut("3g.40gb+2x1g.10gb")], clock=clock)
    card, *parts = (await driver.discover()).gpus
    assert (card.mig_enabled, card.mig_wanted) == (True, True)
    assert [(part.model[-7:], part.instance.compute) for part in parts if part.instance] == [
        ("3g.40gb", 42),
        ("1g.10gb", 14),
        ("1g.10gb", 14),
    ]
    assert [part.memory_usable_mib * 8 // card.memory_usable_mib for part in parts] == [4, 0, 0]
    assert sum(part.memory_usable_mib for part in parts) <= card.memory_usable_mib
    again = SimulatedDriver(node="n", models=[KNOWN_MODELS["A100-80GB"].cut("3g.40gb+2x1g.10gb")], clock=clock)
    assert (await again.discover()).gpus == (card, *parts)
    found = {gpu.uuid: gpu for gpu in inventory(seen(Cards(), await driver.discover(), now=1.0)).gpus}
    assert list(found) == [part.uuid for part in parts]


async def test_a_process_on_an_instance_is_told_there_and_goes_with_its_card() -> None:
    """It has no more memory than the instance, and its neighbours know nothing of it."""
    driver = SimulatedDriver(node="n", models=[KNOWN_MODELS["A30"].cut("2x2g.12gb")], clock=VirtualClock())
    card, first, second = (await driver.discover()).gpus
    assert driver.place_of(second.uuid) == (0, 1)
    assert driver.place_of(card.uuid) == (0, None)
    assert driver.place_of("GPU-of-another") is None
    with pytest.raises(SimulationError, match="MiB are free"):
        driver.start_process(gpu=0, instance=1, pid=7, memory_mib=second.memory_usable_mib + 1)
    driver.start_process(gpu=0, instance=1, pid=7, memory_mib=500, sm_percent=40)
    used = {usage.uuid: usage for usage in await driver.usage()}
    assert [(one.pid, one.memory_mib, one.sm_percent) for one in used[second.uuid].processes] == [(7, 500, None)]
    assert (used[card.uuid].processes, used[first.uuid].processes) == ((), ())
    assert (used[card.uuid].memory_used_mib, used[card.uuid].utilization_percent) == (500, None)
    driver.lose(gpu=0)
    assert (await driver.discover()).gpus == ()
    driver.recover(gpu=0)
    assert [usage.processes for usage in await driver.usage()] == [(), (), ()]
