"""What this process does of a cluster's own parts: kube-scheduler's, the controllers', and nodes that are not there."""

from __future__ import annotations

from functools import partial

import msgspec

from aliquot_agent.health.xids import HealthSettings, policy
from aliquot_agent.settings import AgentSettings
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.node_rules import tolerations_of
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from aliquot_kube.questions import Transport
from aliquot_standalone.centre_child import CentrePlace
from aliquot_standalone.certificates import CentreFiles
from aliquot_standalone.controllers.cron_jobs import CronJobController
from aliquot_standalone.controllers.jobs import JobController
from aliquot_standalone.plan import Plan
from aliquot_standalone.scheduling.extender import Extender, ExtenderSettings
from aliquot_standalone.scheduling.loop import SchedulingLoop
from aliquot_standalone.simulated.fleet import Fleet


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What all of them stand on."""

    transport: Transport
    names: Names
    clock: Clock
    random: Random


def new_extender(centre: CentrePlace, *, files: CentreFiles) -> Extender:
    """The centre, as kube-scheduler asks it."""
    settings = ExtenderSettings(
        url=f"{centre.url}/extender",
        certificate=str(files.client_certificate),
        key=str(files.client_key),
        authority=str(files.authority),
    )
    return Extender(settings)


def new_loop(ground: Ground, *, extender: Extender) -> SchedulingLoop:
    """kube-scheduler's part; who says how it is to be played may go where things are played."""
    return SchedulingLoop(
        transport=ground.transport,
        extender=extender,
        managed=ground.names.resources(),
        clock=ground.clock,
        random=ground.random,
        tolerations=partial(tolerations_of, names=ground.names),
    )


def new_events(ground: Ground) -> EventRecorder:
    """What the controllers tell."""
    return EventRecorder(
        client=KubeClient(transport=ground.transport),
        clock=ground.clock,
        random=ground.random,
        controller="aliquot-controllers",
        instance="aliquot-up",
        ledger=EventLedger(),
    )


def new_jobs(ground: Ground, *, events: EventRecorder) -> JobController:
    """The controller of jobs."""
    return JobController(transport=ground.transport, clock=ground.clock, random=ground.random, events=events)


def new_cron_jobs(ground: Ground, *, events: EventRecorder) -> CronJobController:
    """The controller of cron jobs."""
    return CronJobController(transport=ground.transport, clock=ground.clock, random=ground.random, events=events)


def new_fleet(ground: Ground, *, plan: Plan, agents: AgentSettings) -> Fleet:
    """All simulated nodes; a pod that does not say how it is to be played goes where commands are run, if anywhere."""
    return Fleet(
        nodes={shape.name: shape.models for shape in plan.simulated},
        transport=ground.transport,
        names=ground.names,
        policy=policy(HealthSettings(), names=ground.names),
        context=agents.contexts(),
        clock=ground.clock,
        random=ground.random,
        apart=bool(plan.full),
    )
