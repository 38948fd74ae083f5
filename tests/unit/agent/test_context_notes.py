"""A node that is set to take all of a GPU for a CUDA context says so: nobody would know why nothing is placed there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.simulated import SimulatedDriver
from aliquot_agent.health.context_notes import ContextNotes
from aliquot_agent.settings import AgentSettings
from support.clocks import VirtualClock
from support.watched import Watched

# Of 15 GiB: the setting takes no more than 16.
T4 = KNOWN_MODELS["T4"]


class Events:
    """What was told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def tell(self, **event: Any) -> None:
        """Keep it."""
        self.told.append(event)


@pytest.mark.parametrize(("more", "told"), [(-1, False), (0, True), (1, True)])
async def test_a_context_that_takes_a_gpu_whole_is_told_once(
    *, more: int, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log and by an Event of the node, of that GPU alone, however often its health changes."""
    clock, events = VirtualClock(), Events()
    driver = SimulatedDriver(node="n1", models=[T4] * 2, clock=clock)
    (_, second) = (await driver.discover()).gpus
    settings = AgentSettings(context_mib=300, context_mib_of=(f"1={second.memory_usable_mib + more}",))
    watched = Watched(driver=driver, clock=clock, context=settings.contexts())
    notes = ContextNotes(
        node="n1",
        clock=clock,
        events=events,  # type: ignore[arg-type]  # a double
        inventory=lambda: watched.watch.inventory,
        changed=watched.changed,
    )
    telling = asyncio.ensure_future(notes.run())
    async with watched.running():
        await clock.advance(1)
        watched.obstacle = "something"
        watched.watch.refresh()
        await clock.advance(60)
    telling.cancel()
    expected = [("Node", "n1", "ContextTooLarge", True)] if told else []
    assert [
        (each["regarding"].kind, each["regarding"].name, each["reason"], each["warning"]) for each in events.told
    ] == expected
    logged = [record for record in caplog.records if "CUDA context" in record.getMessage()]
    assert len(logged) == len(expected)
    assert all(second.uuid in each["note"] and "context_mib_of" in each["note"] for each in events.told)
