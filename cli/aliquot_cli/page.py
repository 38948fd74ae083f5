"""How the page is put together, for `aliquot scheduler`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_kube.leadership import Leadership
from aliquot_kube.transport import Transport
from aliquot_scheduler.centre.centre import Centre
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.page.hub import Hub
from aliquot_scheduler.page.looking import Seen
from aliquot_scheduler.page.passing import Passing
from aliquot_scheduler.page.reviews import Reviewer
from aliquot_scheduler.page.routes import PageRoutes
from aliquot_scheduler.page.scraping import ScrapedUsage
from aliquot_scheduler.page.settings import PageSettings
from aliquot_scheduler.web.tls import Tls


class Page:
    """Its parts; nothing is served where the settings say so."""

    def __init__(
        self,
        *,
        settings: PageSettings,
        names: Names,
        centre: Centre,
        leadership: Leadership,
        transport: Transport,
        tls: Tls,
        clock: Clock,
        is_replica: Callable[[web.Request], bool],
    ) -> None:
        self._settings = settings
        self._usage = ScrapedUsage(addresses=settings.usage, every=settings.usage_every, clock=clock)
        self._hub = Hub(
            sight=sight_of(centre, clock=clock), usage=self._usage, clock=clock, names=names, settings=settings
        )
        self._passing = Passing(
            identity=leadership.identity,
            leader_address=lambda: leader.address if (leader := leadership.leader) else None,
            tls=tls.client,
            server_name=CENTRE,
        )
        self._routes = PageRoutes(
            hub=self._hub,
            reviewer=Reviewer(transport=transport, clock=clock),
            passing=self._passing,
            leads=lambda: leadership.leads(clock.monotonic()),
            is_replica=is_replica,
            hosts=settings.hosts,
            readers=settings.readers,
        )

    def over_use(self) -> list[tuple[str, str]] | None:
        """Slices that use more than granted, by pod and by how far it has come; None where agents are not asked."""
        usage = self._usage.latest()
        slices = usage.slices.items()
        return None if usage.at is None else [(pod, use.over_use) for (_, _, pod), use in slices if use.over_use]

    def routes(self) -> list[web.RouteDef]:
        """For both of the centre's servers."""
        return self._routes.routes() if self._settings.serve else []

    async def run(self) -> None:
        """Look, and ask what is used, until cancelled."""
        if self._settings.serve:
            await asyncio.gather(self._hub.run(), self._usage.run())

    async def close(self) -> None:
        """End all connections to the leader."""
        await self._passing.close()


def sight_of(centre: Centre, *, clock: Clock) -> Callable[[], Seen | None]:
    """What the leader knows, whenever somebody looks."""

    def sight() -> Seen | None:
        reign = centre.reign
        if reign is None:
            return None
        return Seen(
            picture=reign.picture,
            turns=reign.turns,
            pods=reign.pods,
            paused=reign.why_not(),
            deaf=reign.why_deaf(),
            evicted=reign.clerks.evicted(),
            now=clock.monotonic(),
            wall=clock.wall(),
        )

    return sight
