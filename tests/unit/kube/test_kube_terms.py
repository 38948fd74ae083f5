"""From leader to leader over an API server: when the last of them beat that had read all there is."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest

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

    from aliquot_core.objects import Lease

NAMES = Names(namespace="default")
SETTINGS = ElectionSettings()


class OlderKeeper(LeaseKeeper):
    """As versions wrote that say nothing of the leaders before: what stands there they leave."""

    async def put(self, claim: Claim, *, over: Lease) -> Lease:
        """All but what they do not know of."""
        known = {name: value for name, value in claim.annotations.items() if name != NAMES.told_until}
        return await super().put(msgspec.structs.replace(claim, annotations=known), over=over)


class Town:
    """One lease, and those who want it one after another."""

    def __init__(self) -> None:
        self.clock = VirtualClock(start=NOW)
        self.client = KubeClient(transport=DirectTransport(frontend=make_frontend(), clock=self.clock))

    @asynccontextmanager
    async def leader(self, name: str, *, writes: type[LeaseKeeper] = LeaseKeeper) -> AsyncIterator[Leadership]:
        """One that leads until it is killed, without a word, at the end of the block."""
        keeper = writes(client=self.client, namespace=NAMES.namespace, name=LEADER_LEASE)
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


@pytest.mark.parametrize("reads", [True, False])
async def test_an_older_leader_in_between_vouches_for_nothing(*, reads: bool) -> None:
    """Whether it has read all nobody knows, and it did not go by the word of one before that had not.

    So who is rolled back and upgraded again is told of an eviction twice, rather than never.
    """
    town = Town()
    async with town.leader("first") as first:
        first.has_read()
        await town.clock.advance(1.5 * SETTINGS.renew)
    beat = await town.renewed()
    async with town.leader("new") as new:
        if reads:
            new.has_read()
            await town.clock.advance(1.5 * SETTINGS.renew)
            beat = await town.renewed()
    for name in ("rolled-back", "rolled-back-too"):
        async with town.leader(name, writes=OlderKeeper):
            await town.clock.advance(2.5 * SETTINGS.renew)
    async with town.leader("upgraded") as upgraded:
        assert upgraded.beat_before == beat
        upgraded.has_read()
        await town.clock.advance(1.5 * SETTINGS.renew)
    told = await town.renewed()
    async with town.leader("next") as following:
        assert following.beat_before == told


async def test_after_an_older_leader_alone_its_last_beat_counts() -> None:
    """Nobody has ever said anything else: at the first upgrade."""
    town = Town()
    async with town.leader("older", writes=OlderKeeper):
        await town.clock.advance(1.5 * SETTINGS.renew)
    beat = await town.renewed()
    async with town.leader("upgraded") as upgraded:
        assert upgraded.beat_before == beat
