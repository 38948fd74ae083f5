"""All settings that a replica of the centre reads."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot_cli.running import start_logging
from aliquot_cli.sources import gather
from aliquot_core.names import Names
from aliquot_kube.election import ElectionSettings
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.certificates.settings import CertificateSettings
from aliquot_scheduler.page.settings import PageSettings
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.rules.expressions import RuleSettings
from aliquot_scheduler.web.settings import WebSettings
from aliquot_scheduler.worth.given import PlacementSettings


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """By section; what is left out is as it is where nobody has set anything."""

    names: Names = msgspec.field(default_factory=Names)
    centre: CentreSettings = msgspec.field(default_factory=CentreSettings)
    queues: QueueSettings = msgspec.field(default_factory=QueueSettings)
    web: WebSettings = msgspec.field(default_factory=WebSettings)
    election: ElectionSettings = msgspec.field(default_factory=ElectionSettings)
    certificates: CertificateSettings = msgspec.field(default_factory=CertificateSettings)
    admission: AdmissionSettings = msgspec.field(default_factory=AdmissionSettings)
    page: PageSettings = msgspec.field(default_factory=PageSettings)
    rules: RuleSettings = msgspec.field(default_factory=RuleSettings)
    placement: PlacementSettings = msgspec.field(default_factory=PlacementSettings)


def read_settings(*, file: str | None, flags: dict[str, Any]) -> Settings:
    """Of environment, file and flags; what is logged from now on is logged as they say."""
    sources = gather(file=file, flags={"scheduler": flags})
    start_logging(sources)
    return Settings(
        names=sources.resolve("names", Names).value,
        centre=sources.resolve("scheduler", CentreSettings).value,
        queues=sources.resolve("queues", QueueSettings).value,
        web=sources.resolve("web", WebSettings).value,
        election=sources.resolve("election", ElectionSettings).value,
        certificates=sources.resolve("certificates", CertificateSettings).value,
        admission=sources.resolve("admission", AdmissionSettings).value,
        page=sources.resolve("page", PageSettings).value,
        rules=sources.resolve("rules", RuleSettings).value,
        placement=sources.resolve("placement", PlacementSettings).value,
    )
