"""`aliquot scheduler`: the composition root of one replica of the centre."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
from prometheus_client import CollectorRegistry

from aliquot_cli.page import Page
from aliquot_cli.running import forget_what_ended, run_until_stopped, start_logging, until
from aliquot_cli.sources import gather
from aliquot_cli.ways import ways_of_the_centre
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import LEADER_LEASE, PACE_LEASE, Names
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.dated import DatedTransport
from aliquot_kube.election import ElectionSettings
from aliquot_kube.fencing import FencedTransport
from aliquot_kube.leadership import Leadership
from aliquot_kube.lease import LeaseKeeper
from aliquot_kube.questions import Timeouts, Transport
from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.landscape import Landscape, told_contexts
from aliquot_scheduler.admission.metrics import AdmissionMetrics
from aliquot_scheduler.admission.profile import tell_profile
from aliquot_scheduler.admission.routes import admission_routes
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.centre.centre import Centre
from aliquot_scheduler.centre.metrics import CentreCollector
from aliquot_scheduler.centre.pace_setter import PaceSetter
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.centre.sight import Sight
from aliquot_scheduler.certificates.keeper import CertificateKeeper
from aliquot_scheduler.certificates.settings import CENTRE, CertificateSettings
from aliquot_scheduler.extender.calling import ExtenderCalls
from aliquot_scheduler.extender.forwarding import Forwarder
from aliquot_scheduler.extender.metrics import CallMetrics
from aliquot_scheduler.extender.routes import extender_routes
from aliquot_scheduler.in_force import InForce, encode_in_force
from aliquot_scheduler.page.settings import PageSettings
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.rules.expressions import RuleSettings
from aliquot_scheduler.rules.installed import rules_in_force
from aliquot_scheduler.web.handshakes import FailedHandshakes
from aliquot_scheduler.web.pages import StatusPages
from aliquot_scheduler.web.server import CentreServer, strangers
from aliquot_scheduler.web.settings import WebSettings
from aliquot_scheduler.web.tls import Tls, TlsFiles
from aliquot_scheduler.worth.given import PlacementSettings

AGENT = "aliquot-scheduler"


class Settings:
    """All sections that a replica reads."""

    def __init__(self, *, file: str | None, flags: dict[str, Any]) -> None:
        sources = gather(file=file, flags={"scheduler": flags})
        start_logging(sources)
        self.names = sources.resolve("names", Names).value
        self.centre = sources.resolve("scheduler", CentreSettings).value
        self.queues = sources.resolve("queues", QueueSettings).value
        self.web = sources.resolve("web", WebSettings).value
        self.election = sources.resolve("election", ElectionSettings).value
        self.certificates = sources.resolve("certificates", CertificateSettings).value
        self.admission = sources.resolve("admission", AdmissionSettings).value
        self.page = sources.resolve("page", PageSettings).value
        self.rules = sources.resolve("rules", RuleSettings).value
        self.placement = sources.resolve("placement", PlacementSettings).value


@click.command()
@click.option("--config", "file", metavar="FILE", help="Settings file (default: $ALIQUOT_CONFIG).")
@click.option("--kubeconfig", metavar="FILE", help="Where the API server is (default: the pod's service account).")
@click.option("--name", metavar="NAME", help="Who this replica is, for people.")
@click.option("--address", metavar="URL", help="Where the other replicas reach this one when it leads.")
def scheduler(file: str | None, **flags: Any) -> None:
    """Place pods on GPUs: answer kube-scheduler and the API server's webhook calls, one replica leading.

    \b
    Example:
      aliquot scheduler --kubeconfig centre.kubeconfig --address https://10.0.0.5:10943
    """
    settings = Settings(file=file, flags=flags)
    run_until_stopped(partial(serve_centre, settings=settings))


async def serve_centre(stop: asyncio.Event, *, settings: Settings) -> None:
    """Be a replica until told to stop; whoever led lets the next one lead at once."""
    tell_profile(settings.admission)
    clock, luck = SystemClock(), random.Random().random  # noqa: S311 - spreads retries, guards nothing
    # The election's is its own, so that no burst of bindings delays a renewal.
    transport, election = ways_of_the_centre(settings.centre.kubeconfig, user_agent=AGENT, clock=clock)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        stack.push_async_callback(election.close)
        # Each replica asks there every few seconds.
        compared = DatedTransport(transport=election, clock=clock)
        leadership = _leadership(settings, transport=compared, clock=clock, random=luck)
        fenced = FencedTransport(transport=transport, check=leadership.check)
        centre = _centre(settings, transport=fenced, leadership=leadership, clock=clock, random=luck)
        keepers = _keepers(settings, client=KubeClient(transport=transport), clock=clock, random=luck)
        for keeper in keepers:
            await keeper.ensure()
        landscape = Landscape(transport=transport, clock=clock, random=luck, names=settings.names)
        admission = Admission(
            names=settings.names,
            settings=settings.admission,
            there=lambda: centre.there() or landscape.there(),
            plans=landscape,
            hardware=centre.hardware,
        )
        tls = _tls(settings, clock=clock)
        page = Page(
            settings=settings.page,
            names=settings.names,
            centre=centre,
            leadership=leadership,
            transport=transport,
            tls=tls,
            clock=clock,
        )
        stack.push_async_callback(page.close)
        forwarder, server = _served(
            settings,
            centre=centre,
            leadership=leadership,
            admission=admission,
            page=page,
            tls=tls,
            clock=clock,
            ahead=lambda: compared.ahead,
        )
        stack.push_async_callback(forwarder.close)
        pace = _pace(settings, client=KubeClient(transport=fenced), centre=centre, leadership=leadership, clock=clock)
        kept: list[Callable[[], Any]] = [partial(keeper.run, changed=tls.look) for keeper in keepers]
        running = [leadership.run, centre.run, server.run, landscape.run, pace.run, page.run, *kept]
        await until(stop, _all(*running), farewell=partial(_all, leadership.resign, server.drain))


def _leadership(settings: Settings, *, transport: Transport, clock: Clock, random: Random) -> Leadership:
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


def _centre(
    settings: Settings, *, transport: Transport, leadership: Leadership, clock: Clock, random: Random
) -> Centre:
    rules, mix = rules_in_force(settings.rules), settings.placement.given

    def new_reign() -> Reign:
        return Reign(
            transport=transport,
            clock=clock,
            random=random,
            names=settings.names,
            settings=settings.centre,
            queues=settings.queues,
            leads=lambda: leadership.leads(clock.monotonic()),
            settled=gc.freeze,
            aside=asyncio.to_thread,
            rules=rules,
            mix=mix,
            renew=settings.election.renew,
        )

    return Centre(leadership=leadership, reign=new_reign, ended=forget_what_ended)


def _pace(
    settings: Settings, *, client: KubeClient, centre: Centre, leadership: Leadership, clock: Clock
) -> PaceSetter:
    names = settings.names
    keeper = LeaseKeeper(client=client, namespace=names.namespace, name=PACE_LEASE)
    in_force = encode_in_force(InForce(queues=settings.queues, rules=settings.rules))

    def beside() -> dict[str, str]:
        return {names.settings: in_force, names.context: told_contexts(centre.there(), settings=settings.admission)}

    return PaceSetter(
        keeper=keeper,
        clock=clock,
        names=names,
        leadership=leadership,
        nodes=centre.beating_nodes,
        beside=beside,
    )


def _keepers(settings: Settings, *, client: KubeClient, clock: Clock, random: Random) -> list[CertificateKeeper]:
    """One, or none where somebody else keeps the certificates."""
    own = settings.certificates
    if not own.own:
        return []
    return [
        CertificateKeeper(
            client=client,
            clock=clock,
            random=random,
            namespace=settings.names.namespace,
            secret=own.secret,
            plan=own.plan(settings.names),
            folder=Path(own.folder),
            webhooks=own.webhooks,
        )
    ]


def _tls(settings: Settings, *, clock: Clock) -> Tls:
    web = settings.web
    files = TlsFiles(certificate=web.certificate, key=web.key, authority=web.authority)
    return Tls(files=files, clock=clock, look_every=web.look_at_files)


def _served(
    settings: Settings,
    *,
    centre: Centre,
    leadership: Leadership,
    admission: Admission,
    page: Page,
    tls: Tls,
    clock: Clock,
    ahead: Callable[[], float | None],
) -> tuple[Forwarder, CentreServer]:
    web, registry = settings.web, CollectorRegistry()
    tls.observe(registry)

    def leads() -> bool:
        return leadership.leads(clock.monotonic())

    def leader_address() -> str | None:
        return leader.address if (leader := leadership.leader) else None

    forwarder = Forwarder(
        identity=leadership.identity,
        leads=leads,
        leader_address=leader_address,
        clock=clock,
        tls=tls.client,
        server_name=CENTRE,
    )
    metrics, stranger = CallMetrics(registry), strangers(allowed=web.allowed_clients, clock=clock)
    calls = ExtenderCalls(
        decisions=centre, leads=leads, forwarder=forwarder, metrics=metrics, clock=clock, names=settings.names
    )
    registry.register(CentreCollector(reign=lambda: centre.reign, leads=leads, over_use=page.over_use, ahead=ahead))
    sight = Sight(clock=clock, blind=centre.why_blind)
    # In a cluster that is when those who follow know no leader any more either.
    ready = partial(unready, leadership, centre=centre, after=settings.election.duration)
    pages = StatusPages(registry=registry, alive=sight.lost, ready=ready)
    shown = page.routes()
    asked = admission_routes(admission, metrics=AdmissionMetrics(registry), clock=clock)
    extender = extender_routes(calls, stranger=stranger, metrics=metrics, clock=clock)
    server = CentreServer(
        settings=web,
        tls=tls,
        routes=[*extender, *asked, *shown],
        pages=pages,
        clock=clock,
        failed=FailedHandshakes(registry=registry, clock=clock),
        plain=shown,
        offered=calls.offered(stranger=stranger),
    )
    return forwarder, server


def unready(leadership: Leadership, *, centre: Centre, after: float) -> list[str]:
    """A replica is ready when extender calls find a decision: here, or with a leader that is known."""
    if leadership.leader is None:
        return ["nobody leads, as far as this replica knows"]
    deaf = centre.why_deaf(after=after)
    return [deaf] if deaf else []


async def _all(*parts: Callable[[], Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(part())
