"""The calls that await the agent's answer, and what happens to them when agents come and go."""

from __future__ import annotations

import asyncio

import pytest

from aliquot_core import door
from aliquot_deviceplugin.endpoint.agent_calls import AgentCalls
from support.clocks import VirtualClock

QUESTION = door.PreStart(call=0, resource="aliquot.dev/compute", ids=["a-1"])
WISH = door.Prefer(call=0, resource="aliquot.dev/compute", available=["a-1", "a-2"], must_include=[], size=1)


class Agent:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.heard: list[door.FromEndpoint] = []

    def starts(self) -> list[tuple[int, float]]:
        """Number and patience of each start it was asked for."""
        return [(call.call, call.patience) for call in self.heard if isinstance(call, door.PreStart)]


async def test_answer_reaches_its_caller() -> None:
    """Each caller gets the answer to its own call, whatever the order of the answers."""
    clock, agent = VirtualClock(), Agent()
    calls = AgentCalls(clock=clock)
    calls.agent_came(agent.heard.append)
    first = asyncio.ensure_future(calls.may_start(QUESTION, patience=28))
    second = asyncio.ensure_future(calls.may_start(QUESTION, patience=28))
    await clock.advance(0)
    calls.answered(door.Started(call=2, refused="no"))
    calls.answered(door.Started(call=1))
    calls.answered(door.Started(call=1, refused="said twice: the first word counts"))

    assert await first == door.Started(call=1)
    assert await second == door.Started(call=2, refused="no")
    assert calls.waiting == 0


async def test_successor_is_asked_again_with_the_time_left() -> None:
    """What a killed agent did not answer, its successor is asked, and what it did answer is not asked again."""
    clock, killed, successor = VirtualClock(), Agent(), Agent()
    calls = AgentCalls(clock=clock)
    calls.agent_came(killed.heard.append)
    answered = asyncio.ensure_future(calls.may_start(QUESTION, patience=28))
    open_still = asyncio.ensure_future(calls.may_start(QUESTION, patience=28))
    await clock.advance(0)
    calls.answered(door.Started(call=1))
    await answered
    calls.agent_left()
    await clock.advance(10)
    calls.agent_came(successor.heard.append)
    calls.answered(door.Started(call=2))

    assert killed.starts() == [(1, 28.0), (2, 28.0)]
    assert successor.starts() == [(2, 18.0)]
    assert await open_still == door.Started(call=2)


async def test_nobody_answers() -> None:
    """A start that nobody answers is given up when its time is up, and the agent hears of it."""
    clock, agent = VirtualClock(), Agent()
    calls = AgentCalls(clock=clock)
    calls.agent_came(agent.heard.append)
    call = asyncio.ensure_future(calls.may_start(QUESTION, patience=28))
    await clock.advance(27.9)
    early = call.done()
    await clock.advance(0.2)

    assert not early
    assert await call is None
    assert agent.heard[-1] == door.Forget(call=1)


async def test_given_up_by_the_kubelet() -> None:
    """A call that the kubelet cancels is closed at once, and a late answer to it is for nobody."""
    clock, agent = VirtualClock(), Agent()
    calls = AgentCalls(clock=clock)
    calls.agent_came(agent.heard.append)
    call = asyncio.ensure_future(calls.may_start(QUESTION, patience=28))
    await clock.advance(0)
    call.cancel()
    await clock.advance(0)
    calls.answered(door.Started(call=1))

    assert calls.waiting == 0
    assert agent.heard[-1] == door.Forget(call=1)


async def test_no_agent_no_waiting_for_advice() -> None:
    """A preference is not waited for where no agent is there, while a start is."""
    clock = VirtualClock()
    calls = AgentCalls(clock=clock)
    start = asyncio.ensure_future(calls.may_start(QUESTION, patience=28))

    assert await calls.preference(WISH, patience=0.2) is None
    await clock.advance(1)
    assert not start.done()
    calls.agent_came(lambda call: calls.answered(door.Started(call=call.call)))  # type: ignore[union-attr]  # a start
    assert await start == door.Started(call=1)


async def test_advice_in_time_or_not_at_all() -> None:
    """A preference is taken while it is waited for, and not after."""
    clock, agent = VirtualClock(), Agent()
    calls = AgentCalls(clock=clock)
    calls.agent_came(agent.heard.append)
    quick = asyncio.ensure_future(calls.preference(WISH, patience=0.2))
    slow = asyncio.ensure_future(calls.preference(WISH, patience=0.2))
    await clock.advance(0.1)
    calls.answered(door.Preference(call=1, ids=["a-2"]))
    await clock.advance(0.2)
    calls.answered(door.Preference(call=2, ids=["a-2"]))

    assert await quick == door.Preference(call=1, ids=["a-2"])
    assert await slow is None


async def test_answer_of_the_wrong_kind() -> None:
    """An agent that answers a start with a preference has broken the protocol."""
    clock, agent = VirtualClock(), Agent()
    calls = AgentCalls(clock=clock)
    calls.agent_came(agent.heard.append)
    call = asyncio.ensure_future(calls.may_start(QUESTION, patience=28))
    await clock.advance(0)

    with pytest.raises(door.DoorError, match="call 1"):
        calls.answered(door.Preference(call=1))
    calls.answered(door.Started(call=1))
    assert await call == door.Started(call=1)


async def test_leaving_lets_all_go() -> None:
    """When the endpoint leaves, all who wait go at once, and whoever comes after does not wait."""
    clock = VirtualClock()
    calls = AgentCalls(clock=clock)
    call = asyncio.ensure_future(calls.may_start(QUESTION, patience=28))
    await clock.advance(0)
    calls.close()

    assert await call is None
    assert await calls.may_start(QUESTION, patience=28) is None
