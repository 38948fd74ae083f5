"""The watch over a node's GPUs, on simulated ones and a clock that tests move."""

from __future__ import annotations

from collections import Counter

import pytest

from aliquot_agent.gpus.driver import driver_mismatch, driver_missing
from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.model import GpuUsage
from aliquot_agent.gpus.simulated import SimulatedDriver, simulated_uuid
from aliquot_agent.health.gpu_watch import LOOK_AFRESH, TRY_AGAIN
from aliquot_agent.health.xids import HealthSettings
from aliquot_agent.settings import AgentSettings
from aliquot_agent.web.pulse import Pulse
from aliquot_core.inventory import Health
from support.clocks import VirtualClock
from support.watched import KeptInMemory, Watched

WELL, LESS, SICK = Health.HEALTHY, Health.DEGRADED, Health.SICK
A, B = (simulated_uuid(node="n1", index=index) for index in range(2))


@pytest.fixture
def clock() -> VirtualClock:
    """Time stands still until a test moves it."""
    return VirtualClock()


@pytest.fixture
def driver(clock: VirtualClock) -> SimulatedDriver:
    """Two GPUs."""
    return SimulatedDriver(node="n1", models=[KNOWN_MODELS["L4"]] * 2, clock=clock)


@pytest.fixture
def watched(driver: SimulatedDriver, clock: VirtualClock) -> Watched:
    """The watch over them."""
    return Watched(driver=driver, clock=clock)


async def test_an_xid_makes_its_gpu_sick_at_once_until_an_operator_clears_it(
    watched: Watched, driver: SimulatedDriver, clock: VirtualClock
) -> None:
    """Looking again does not make it well, and the other is not touched."""
    async with watched.running():
        await clock.advance(1)
        assert watched.health == [WELL, WELL]
        driver.raise_xid(gpu=0, number=48)
        await clock.advance(0)
        assert watched.health == [SICK, WELL]
        await clock.advance(10 * LOOK_AFRESH)
        assert watched.health == [SICK, WELL]
        watched.annotate(clear_health=A)
        assert watched.health == [WELL, WELL]


async def test_what_a_context_takes_is_told_of_each_gpu(driver: SimulatedDriver, clock: VirtualClock) -> None:
    """As the node's settings have it of this GPU, or not at all."""
    told = AgentSettings(context_mib=400, context_mib_of=("1=300",))
    for context, expected in ((lambda _: None, [None, None]), (lambda _: 0, [0, 0]), (told.contexts(), [400, 300])):
        watched = Watched(driver=driver, clock=clock, context=context)
        async with watched.running():
            await clock.advance(1)
            assert [gpu.context for gpu in watched.watch.inventory.gpus] == expected


async def test_an_xid_counts_before_the_driver_was_asked_again(
    watched: Watched, driver: SimulatedDriver, clock: VirtualClock
) -> None:
    """The moment at which a GPU fails is the moment at which questions about it hang."""
    async with watched.running():
        await clock.advance(1)
        driver.slow(gpu=0, seconds=4.0)
        driver.raise_xid(gpu=0, number=119)
        await clock.advance(0)
        assert watched.health == [SICK, WELL]


async def test_a_clearing_excuses_nothing_that_comes_after_it(
    watched: Watched, driver: SimulatedDriver, clock: VirtualClock
) -> None:
    """It stands on the node for a moment longer, and the node is seen again meanwhile."""
    async with watched.running():
        await clock.advance(1)
        watched.annotate(clear_health="*")
        driver.raise_xid(gpu=1, number=79)
        await clock.advance(0)
        watched.annotate(clear_health="*")
        assert watched.health == [WELL, SICK]
        watched.annotate()
        watched.annotate(clear_health="*")
        assert watched.health == [WELL, WELL]


async def test_a_mended_node_is_noticed_within_seconds(watched: Watched, clock: VirtualClock) -> None:
    """No event tells that driver files were put right."""
    watched.obstacle = "the NVIDIA CDI spec is garbled"
    async with watched.running():
        await clock.advance(1)
        assert watched.health == [SICK, SICK]
        watched.obstacle = ""
        await clock.advance(TRY_AGAIN)
        assert watched.health == [WELL, WELL]


async def test_a_lost_gpu_comes_back_well(watched: Watched, driver: SimulatedDriver, clock: VirtualClock) -> None:
    """XID 79 is over with the reset that brought it back."""
    async with watched.running():
        await clock.advance(1)
        driver.raise_xid(gpu=0, number=79)
        driver.lose(gpu=0)
        await clock.advance(1)
        assert watched.health == [SICK, WELL]
        driver.recover(gpu=0)
        await clock.advance(LOOK_AFRESH)
        assert watched.health == [WELL, WELL]


async def test_programs_own_faults_are_counted_and_nothing_else(
    watched: Watched, driver: SimulatedDriver, clock: VirtualClock
) -> None:
    """They come by the hundred, and must not make the agent ask the driver a hundred times."""
    async with watched.running():
        await clock.advance(1)
        # The next look would take so long, and the watch would wait for it.
        driver.slow(gpu=1, seconds=4.0)
        for _ in range(100):
            driver.raise_xid(gpu=0, number=31)
        await clock.advance(0)
        driver.raise_xid(gpu=0, number=13)
        await clock.advance(0)
        assert watched.watch.xids == Counter({(A, 31): 100, (A, 13): 1})
        assert watched.health == [WELL, WELL]


async def test_a_restart_makes_no_gpu_well(driver: SimulatedDriver, clock: VirtualClock) -> None:
    """An upgrade of the agent is no reset of a GPU."""
    memory = KeptInMemory()
    first = Watched(driver=driver, clock=clock, memory=memory)
    async with first.running():
        await clock.advance(1)
        driver.raise_xid(gpu=1, number=95)
        await clock.advance(1)
    second = Watched(driver=driver, clock=clock, memory=memory)
    async with second.running():
        await clock.advance(1)
        assert second.health == [WELL, SICK]
        second.annotate(clear_health=B)
        await clock.advance(1)
    assert memory.kept == ()
    assert memory.saves == 2


async def test_what_the_settings_let_pass_passes(driver: SimulatedDriver, clock: VirtualClock) -> None:
    """With a time set, a sick GPU is trusted again."""
    watched = Watched(driver=driver, clock=clock, settings=HealthSettings(sick_for=600.0))
    async with watched.running():
        await clock.advance(1)
        driver.raise_xid(gpu=0, number=48)
        await clock.advance(599)
        assert watched.health == [SICK, WELL]
        await clock.advance(1 + LOOK_AFRESH)
        assert watched.health == [WELL, WELL]


async def test_marks_are_taken_in_before_and_after_the_gpus_are_known(watched: Watched, clock: VirtualClock) -> None:
    """The API server may answer before the driver."""
    watched.annotate(cordoned_gpus=B)
    async with watched.running():
        await clock.advance(1)
        assert watched.health == [WELL, SICK]
        watched.annotate(degraded_gpus=f"{A},{B}")
        assert watched.health == [LESS, LESS]


async def test_heat_for_long_degrades(watched: Watched, clock: VirtualClock) -> None:
    """Samples tell of it."""
    async with watched.running():
        await clock.advance(1)
        hot = GpuUsage(uuid=A, memory_used_mib=0, throttle_reasons=("hardware-slowdown",))
        watched.watch.sample([hot])
        await clock.advance(301)
        watched.watch.sample([hot])
        assert watched.health == [LESS, WELL]


async def test_a_driver_that_is_upgraded_half_is_called_that(
    watched: Watched, driver: SimulatedDriver, clock: VirtualClock
) -> None:
    """And is well again when the other half is there; XIDs of before stay."""
    async with watched.running():
        await clock.advance(1)
        driver.raise_xid(gpu=0, number=48)
        await clock.advance(1)
        driver.refuse(driver_mismatch())
        await clock.advance(LOOK_AFRESH)
        assert "version mismatch" in watched.watch.inventory.problem
        assert (watched.watch.cards.kind, watched.health) == ("mismatch", [SICK, SICK])
        driver.refuse(None)
        await clock.advance(TRY_AGAIN + 1)
        assert (watched.watch.cards.kind, watched.health) == ("", [SICK, WELL])


async def test_the_watch_beats_while_there_is_no_driver(
    watched: Watched, driver: SimulatedDriver, clock: VirtualClock
) -> None:
    """A node that is being mended is no reason to kill its agent."""
    driver.refuse(driver_missing(library=True))
    async with watched.running():
        await clock.advance(1)
        before = watched.beats
        await clock.advance(3 * LOOK_AFRESH)
        assert watched.beats >= before + 3


def test_a_loop_that_is_silent_for_too_long_is_named(clock: VirtualClock) -> None:
    """Each by its own patience, counted from the start."""
    pulse = Pulse(clock=clock, allowed={"fast": 5.0, "slow": 50.0})
    clock._now += 6.0
    assert pulse.silent() == {"fast": 6.0}
    pulse.beat("fast")()
    assert pulse.silent() == {}
    clock._now += 60.0
    assert pulse.silent() == {"fast": 60.0, "slow": 66.0}
