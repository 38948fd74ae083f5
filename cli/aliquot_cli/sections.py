"""Every section of settings, by its name: a new one is a struct where it is used, with one line here."""

from __future__ import annotations

import msgspec

from aliquot_agent.health.xids import HealthSettings
from aliquot_agent.isolation.mps_settings import MpsSettings
from aliquot_agent.settings import AgentSettings
from aliquot_cli.settings import RunSettings
from aliquot_core.logs import LogSettings
from aliquot_core.names import Names
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_kube.election import ElectionSettings
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.certificates.settings import CertificateSettings
from aliquot_scheduler.page.settings import PageSettings
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.rules.expressions import RuleSettings
from aliquot_scheduler.web.settings import WebSettings
from aliquot_scheduler.worth.given import PlacementSettings
from aliquot_standalone.settings import UpSettings

SECTIONS: dict[str, type[msgspec.Struct]] = {
    "names": Names,
    "log": LogSettings,
    "agent": AgentSettings,
    "health": HealthSettings,
    "endpoint": EndpointSettings,
    "mps": MpsSettings,
    "scheduler": CentreSettings,
    "queues": QueueSettings,
    "rules": RuleSettings,
    "placement": PlacementSettings,
    "web": WebSettings,
    "election": ElectionSettings,
    "certificates": CertificateSettings,
    "admission": AdmissionSettings,
    "page": PageSettings,
    "up": UpSettings,
    "run": RunSettings,
}
