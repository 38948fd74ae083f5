"""The device table, and who listens to it."""

from __future__ import annotations

import asyncio

from aliquot_core.door import Device
from aliquot_deviceplugin.endpoint.table import HEALTHY, LINGER, UNHEALTHY, Listener, Table, list_message
from support.clocks import VirtualClock

ONE, TWO = [Device(id="a-00")], [Device(id="a-00"), Device(id="a-01")]
THREE = [*TWO, Device(id="a-02")]


async def taken(listener: Listener) -> int | None:
    """How many devices the next list has, at once; None where there is none."""
    devices = await told(listener)
    return None if devices is None else len(devices)


async def told(listener: Listener) -> dict[str, str] | None:
    """The next list's ids with their health; None where there is none."""
    try:
        async with asyncio.timeout(0):
            message = await listener.next()
    except TimeoutError:
        return None
    assert message is not None
    assert len({device.ID for device in message.devices}) == len(message.devices)
    return {device.ID: device.health for device in message.devices}


async def test_each_list_once() -> None:
    """A listener gets the present list, then each other one, and the same one never twice."""
    table = Table(ONE, clock=VirtualClock())
    with table.listen() as listener:
        heard = [await taken(listener), await taken(listener)]
        table.replace(list(ONE))
        heard.append(await taken(listener))
        table.replace(TWO)
        heard += [await taken(listener), await taken(listener)]

    assert heard == [1, None, None, 2, None]


async def test_the_newest_counts() -> None:
    """Who was slow gets the newest list, not those between."""
    table = Table(ONE, clock=VirtualClock())
    with table.listen() as slow, table.listen() as quick:
        assert await taken(quick) == 1
        table.replace(TWO)
        assert await taken(quick) == 2
        table.replace(THREE)
        assert [await taken(slow), await taken(slow), await taken(quick)] == [3, None, 3]


async def test_an_id_that_is_taken_out_stays_unhealthy_until_no_allocation_can_be_under_way() -> None:
    """The kubelet dies of an id that it has chosen and that is not in its list any more when Allocate is answered."""
    clock = VirtualClock()
    table = Table(TWO, clock=clock)
    with table.listen() as listener:
        await listener.next()
        table.replace(ONE)
        assert await told(listener) == {"a-00": HEALTHY, "a-01": UNHEALTHY}
        await clock.advance(LINGER - 0.1)
        table.let_go()
        assert await told(listener) is None
        await clock.advance(0.1)
        table.let_go()
        assert await told(listener) == {"a-00": HEALTHY}
        assert table.devices == tuple(ONE)


async def test_an_id_that_comes_back_in_time_is_what_the_agent_says() -> None:
    """It is in the list once, and does not go when its time would have been over."""
    clock = VirtualClock()
    table = Table(TWO, clock=clock)
    with table.listen() as listener:
        table.replace(ONE)
        table.replace(TWO)
        assert await told(listener) == {"a-00": HEALTHY, "a-01": HEALTHY}
        await clock.advance(LINGER)
        table.let_go()
        assert await told(listener) is None


async def test_ended_means_no_more() -> None:
    """An ended listener gets nothing, not even a list that waits."""
    table = Table(ONE, clock=VirtualClock())
    with table.listen() as listener:
        listener.end()
        assert await listener.next() is None


async def test_gone_is_forgotten() -> None:
    """A stream that ended leaves nothing behind: the kubelet restarts many times in an endpoint's life."""
    table = Table(ONE, clock=VirtualClock())
    with table.listen():
        pass

    assert not table._listeners


def test_size_of_a_whole_node() -> None:
    """Sixteen GPUs stay far below the kubelet's 4 MiB."""
    devices = [Device(id=f"{gpu:06x}-{slot:02}") for gpu in range(16) for slot in range(132)]

    assert list_message(devices).ByteSize() < 64 * 1024
