"""From leader to leader over an API server: when the last of them beat that had read all there is."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aliquot_core.instants import seconds_of
from aliquot_core.names import LEADER_LEASE, Names
from aliquot_kube.client import KubeClient
from aliquot_kube.election import ElectionSettings
from aliquot_kube.leadership import Leadership
from aliquot_kube.lease import Claim, LeaseKeeper
from aliquot_kube.resources import LEASES
from aliquot_standalone.apiserver.direct import DirectTransport
from support.clocks import VirtualClock
from support.embedded_api import NOW, make_frontend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAMES = Names(namespace="default")
SETTINGS = ElectionSettings()


class Town:
    """One lease, and those who want it one after another."""

    def __init__(self) -> None:
        self.clock = VirtualClock(start=NOW)
        self.client = KubeClient(transport=DirectTransport(frontend=make_frontend(), clock=self.clock))

    @asynccontextmanager
    async def leader(self, name: str) -> AsyncIterator[Leadership]:
        """One that leads until it is killed, without a word, at the end of the block."""
        keeper = LeaseKeeper(client=self.client, namespace=NAMES.namespace, name=LEADER_LEASE)
        leadership = Leadership(
            keeper=keeper,
            clock=self.clock,
            random=lambda: 0.5,
            name=name,
            address=name,
            names=NAMES,
            settings=SETTINGS,
        )
        running = asyncio.ensure_future(leadership.run())
        try:
            while not leadership.fence:
                await self.clock.advance(0.5)
            yield leadership
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def renewed(self) -> float:
        """When whoever holds it wrote last."""
        lease = await self.client.get(LEASES, namespace=NAMES.namespace, name=LEADER_LEASE)
        at = seconds_of(lease.spec.renew_time)
        assert at is not None
        return at


async def test_leaders_that_are_killed_before_they_have_read_lose_no_gap() -> None:
    """The first that reads all knows since when nobody has; then it counts itself."""
    town = Town()
    async with town.leader("first") as first:
        assert first.beat_before is None
        first.has_read()
        await town.clock.advance(30.0)
    beat = await town.renewed()
    for name in ("killed", "killed-too"):
        async with town.leader(name) as killed:
            assert killed.beat_before == beat
            # Its renewals say so too.
            await town.clock.advance(2.5 * SETTINGS.renew)
    async with town.leader("reads") as reads:
        assert reads.beat_before == beat
        reads.has_read()
        await town.clock.advance(1.5 * SETTINGS.renew)
    read = await town.renewed()
    async with town.leader("next") as following:
        assert following.beat_before == read


async def test_where_the_very_first_has_not_read_all_is_to_be_looked_for() -> None:
    """Nobody has told of anything."""
    town = Town()
    async with town.leader("first"):
        pass
    async with town.leader("second") as second:
        assert second.beat_before == 0.0


async def test_who_lets_go_before_it_has_read_counts_for_nothing_either() -> None:
    """As in an upgrade that goes through both replicas."""
    town = Town()
    async with town.leader("first") as first:
        first.has_read()
        await town.clock.advance(1.5 * SETTINGS.renew)
    beat = await town.renewed()
    async with town.leader("upgraded") as upgraded:
        leaving = asyncio.ensure_future(upgraded.resign())
        await town.clock.advance(5.0)
        assert leaving.done()
    async with town.leader("next") as following:
        assert following.beat_before == beat


async def test_what_is_to_be_said_no_more_is_taken_away() -> None:
    """And not made in the first place."""
    client = Town().client
    keeper = LeaseKeeper(client=client, namespace=NAMES.namespace, name="lease")
    for kept, gone in ((None, "1"), ("2", None)):
        written = await keeper.write(Claim(holder="h", duration=10.0, wall=NOW, annotations={"a": kept, "b": gone}))
        assert dict(written.metadata.annotations) == ({"a": kept} if kept else {"b": gone})
