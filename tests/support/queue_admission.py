"""A webhook that knows queues: by what it has heard, and by what the API server would say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot_core.objects import Namespace, Queue
from aliquot_kube.errors import ServerTroubleError
from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.queues.said.entry import Plan, plan_of
from support.admitting import NAMES, Json, answered, queue_review

Specs = Mapping[str, Any]


def plan(queues: Specs, homes: Mapping[str, str] | None = None) -> Plan:
    """A cluster's queues, and its namespaces' own."""
    return plan_of(
        [msgspec.convert({"metadata": {"name": name}, "spec": spec}, Queue) for name, spec in queues.items()],
        [
            msgspec.convert({"metadata": {"name": name, "labels": {NAMES.queue: queue}}}, Namespace)
            for name, queue in (homes or {}).items()
        ],
        names=NAMES,
    )


class Told:
    """What was heard, and what the API server would say."""

    def __init__(self, *, heard: Plan | None, now: Plan | None) -> None:
        self.heard, self.now = heard, now
        self.questions = 0

    def known(self) -> Plan | None:
        """By what was heard last."""
        return self.heard

    async def asked(self, namespace: str = "") -> Plan:
        """By what the API server says."""
        self.questions += 1
        if self.now is None:
            raise ServerTroubleError(f"asked for {namespace}", status=503)
        return self.now


def admission(told: Told) -> Admission:
    """A webhook that knows queues."""
    return Admission(names=NAMES, settings=AdmissionSettings(), plans=told)


async def of_queue(queues: Specs, name: str, spec: Any, homes: Mapping[str, str] | None = None, **more: Any) -> Json:
    """The answer to a change of one of these queues."""
    now = plan(queues, homes)
    return answered(
        await admission(Told(heard=None, now=now)).validating_queue(
            queue_review(name, spec, old=queues.get(name), **more)
        )
    )


ORG = {
    "org": {"compute": {"limit": 800}},
    "a": {"parent": "org", "compute": {"guarantee": 400}},
    "b": {"parent": "org", "compute": {"guarantee": 300}},
}
