"""How a replica of the centre is put together, as far as it is asked: certificates, servers and who is let in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry

from aliquot_cli.page import Page
from aliquot_cli.replica_settings import Settings
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_kube.client import KubeClient
from aliquot_kube.leadership import Leadership
from aliquot_kube.questions import Transport
from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.landscape import Landscape
from aliquot_scheduler.admission.metrics import AdmissionMetrics
from aliquot_scheduler.admission.onlooker import Onlooker
from aliquot_scheduler.admission.routes import admission_routes
from aliquot_scheduler.admission.sparing import Sparing
from aliquot_scheduler.centre.centre import Centre
from aliquot_scheduler.centre.metrics import CentreCollector
from aliquot_scheduler.centre.sight import Sight
from aliquot_scheduler.certificates.keeper import CertificateKeeper
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.extender.calling import ExtenderCalls
from aliquot_scheduler.extender.forwarding import Forwarder
from aliquot_scheduler.extender.metrics import CallMetrics
from aliquot_scheduler.extender.routes import extender_routes
from aliquot_scheduler.web.handshakes import FailedHandshakes
from aliquot_scheduler.web.pages import StatusPages
from aliquot_scheduler.web.server import CentreServer, strangers
from aliquot_scheduler.web.tls import Tls, TlsFiles


def keepers_of(settings: Settings, *, client: KubeClient, clock: Clock, random: Random) -> list[CertificateKeeper]:
    """Who keeps its certificates: one, or none where somebody else keeps the certificates."""
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


def tls_of(settings: Settings, *, clock: Clock) -> Tls:
    """What it serves and asks with."""
    own = settings.web
    files = TlsFiles(certificate=own.certificate, key=own.key, authority=own.authority)
    return Tls(files=files, clock=clock, look_every=own.look_at_files)


def admission_of(settings: Settings, *, centre: Centre, landscape: Landscape) -> Admission:
    """What it says to the API server: by what the leader knows, where that is this one, else by what all follow."""
    return Admission(
        names=settings.names,
        settings=settings.admission,
        there=lambda: centre.there() or landscape.there(),
        plans=landscape,
        hardware=centre.hardware,
    )


def page_of(
    settings: Settings, *, centre: Centre, leadership: Leadership, transport: Transport, tls: Tls, clock: Clock
) -> Page:
    """What it shows to people."""
    return Page(
        settings=settings.page,
        names=settings.names,
        centre=centre,
        leadership=leadership,
        transport=transport,
        tls=tls,
        clock=clock,
        is_replica=replicas(clock=clock),
    )


def replicas(*, clock: Clock) -> Callable[[web.Request], bool]:
    """Tells whether another replica asks: it shows the certificate that it serves with."""
    stranger = strangers(allowed=(CENTRE,), clock=clock)
    return lambda request: not stranger(request.transport)


def served(
    settings: Settings,
    *,
    centre: Centre,
    leadership: Leadership,
    admission: Admission,
    onlooker: Onlooker,
    page: Page,
    tls: Tls,
    clock: Clock,
    ahead: Callable[[], float | None],
) -> tuple[Forwarder, CentreServer]:
    """Whoever passes calls on to the leader, and who takes all calls in; `ahead` is what its clock is ahead."""
    listening, registry = settings.web, CollectorRegistry()
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
    metrics, stranger = CallMetrics(registry), strangers(allowed=listening.allowed_clients, clock=clock)
    calls = ExtenderCalls(
        decisions=centre, leads=leads, forwarder=forwarder, metrics=metrics, clock=clock, names=settings.names
    )
    registry.register(CentreCollector(reign=lambda: centre.reign, leads=leads, over_use=page.over_use, ahead=ahead))
    sight = Sight(clock=clock, blind=centre.why_blind)
    ready = partial(unready, leadership, centre=centre, settings=settings)
    pages = StatusPages(registry=registry, alive=sight.lost, ready=ready)
    shown = page.routes()
    sparing = Sparing(
        names=settings.names, leads=leads, one_for=centre.one_for, one_seen=onlooker.one_for, forward=forwarder.forward
    )
    asked = admission_routes(
        admission,
        sparing=sparing,
        metrics=AdmissionMetrics(registry),
        clock=clock,
        is_replica=replicas(clock=clock),
    )
    extender = extender_routes(calls, stranger=stranger, metrics=metrics, clock=clock)
    server = CentreServer(
        settings=listening,
        tls=tls,
        routes=[*extender, *asked, *shown],
        pages=pages,
        clock=clock,
        failed=FailedHandshakes(registry=registry, clock=clock),
        plain=shown,
        offered=calls.offered(stranger=stranger),
    )
    return forwarder, server


def unready(leadership: Leadership, *, centre: Centre, settings: Settings) -> list[str]:
    """A replica is ready when extender calls find a decision: here, or with a leader that is known."""
    if leadership.leader is None:
        return ["nobody leads, as far as this replica knows"]
    # In a cluster that is when those who follow know no leader any more either.
    deaf = centre.why_deaf(after=settings.election.duration)
    return [deaf] if deaf else []
