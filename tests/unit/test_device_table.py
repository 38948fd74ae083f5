"""The device table, and who listens to it."""

from __future__ import annotations

import asyncio

from aliquot_core.door import Device
from aliquot_deviceplugin.endpoint.table import Listener, Table, list_message

ONE, TWO = [Device(id="a-00")], [Device(id="a-00"), Device(id="a-01")]


async def taken(listener: Listener) -> int | None:
    """How many devices the next list has, at once; None where there is none."""
    try:
        async with asyncio.timeout(0):
            message = await listener.next()
    except TimeoutError:
        return None
    assert message is not None
    return len(message.devices)


async def test_each_list_once() -> None:
    """A listener gets the present list, then each other one, and the same one never twice."""
    table = Table(ONE)
    with table.listen() as listener:
        heard = [await taken(listener), await taken(listener)]
        table.replace(list(ONE))
        heard.append(await taken(listener))
        table.replace(TWO)
        heard += [await taken(listener), await taken(listener)]

    assert heard == [1, None, None, 2, None]


async def test_the_newest_counts() -> None:
    """Who was slow gets the newest list, not those between."""
    table = Table(ONE)
    with table.listen() as slow, table.listen() as quick:
        assert await taken(quick) == 1
        table.replace(TWO)
        assert await taken(quick) == 2
        table.replace([])
        assert [await taken(slow), await taken(slow), await taken(quick)] == [0, None, 0]


async def test_ended_means_no_more() -> None:
    """An ended listener gets nothing, not even a list that waits."""
    table = Table(ONE)
    with table.listen() as listener:
        listener.end()
        assert await listener.next() is None


async def test_gone_is_forgotten() -> None:
    """A stream that ended leaves nothing behind: the kubelet restarts many times in an endpoint's life."""
    table = Table(ONE)
    with table.listen():
        pass

    assert not table._listeners


def test_size_of_a_whole_node() -> None:
    """Sixteen GPUs stay far below the kubelet's 4 MiB."""
    devices = [Device(id=f"{gpu:06x}-{slot:02}") for gpu in range(16) for slot in range(132)]

    assert list_message(devices).ByteSize() < 64 * 1024
