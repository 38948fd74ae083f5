"""How a replica of the centre is put together, as far as it decides: who leads, and what the leader does."""

from __future__ import annotations

import asyncio
import gc

from aliquot_cli.replica_settings import Settings
from aliquot_cli.running import forget_what_ended
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import LEADER_LEASE, PACE_LEASE
from aliquot_kube.client import KubeClient
from aliquot_kube.leadership import Leadership
from aliquot_kube.lease import LeaseKeeper
from aliquot_kube.questions import Timeouts, Transport
from aliquot_scheduler.admission.told_there import told_there
from aliquot_scheduler.centre.centre import Centre
from aliquot_scheduler.centre.pace_setter import PaceSetter
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.in_force import InForce, encode_in_force
from aliquot_scheduler.rules.installed import rules_in_force


def leadership_of(settings: Settings, *, transport: Transport, clock: Clock, random: Random) -> Leadership:
    """Its candidacy."""
    keeper = LeaseKeeper(
        client=KubeClient(transport=transport, timeouts=Timeouts(total=settings.election.request)),
        namespace=settings.names.namespace,
        name=LEADER_LEASE,
    )
    return Leadership(
        keeper=keeper,
        clock=clock,
        random=random,
        name=settings.centre.name,
        address=settings.centre.url,
        names=settings.names,
        settings=settings.election,
    )


def centre_of(
    settings: Settings, *, transport: Transport, leadership: Leadership, clock: Clock, random: Random
) -> Centre:
    """What it decides while it leads."""
    rules, mix = rules_in_force(settings.rules), settings.placement.given

    def settled() -> None:
        leadership.has_read()
        gc.freeze()

    def new_reign() -> Reign:
        return Reign(
            transport=transport,
            clock=clock,
            random=random,
            names=settings.names,
            settings=settings.centre,
            queues=settings.queues,
            leads=lambda: leadership.leads(clock.monotonic()),
            settled=settled,
            led_until=leadership.beat_before,
            renew=settings.election.renew,
            aside=asyncio.to_thread,
            rules=rules,
            mix=mix,
        )

    return Centre(leadership=leadership, reign=new_reign, ended=forget_what_ended)


def pace_of(
    settings: Settings, *, client: KubeClient, centre: Centre, leadership: Leadership, clock: Clock
) -> PaceSetter:
    """What the leader tells all agents, and whoever explains."""
    names = settings.names
    keeper = LeaseKeeper(client=client, namespace=names.namespace, name=PACE_LEASE)
    in_force = encode_in_force(InForce(queues=settings.queues, rules=settings.rules))

    def beside() -> dict[str, str]:
        return {names.settings: in_force, **told_there(centre.there(), names=names, settings=settings.admission)}

    return PaceSetter(
        keeper=keeper,
        clock=clock,
        names=names,
        leadership=leadership,
        nodes=centre.beating_nodes,
        beside=beside,
    )
