"""What an operator can set of the centre's own certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from aliquot_core.names import Names
from aliquot_core.settings import FilePath

if TYPE_CHECKING:
    from aliquot_scheduler.certificates.keeping import Plan

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]

# The name in the certificate that each replica serves with and calls the leader with.
CENTRE = "aliquot-centre"
# And in kube-scheduler's, as Kubernetes itself names it.
KUBE_SCHEDULER = "system:kube-scheduler"


class CertificateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[certificates]`."""

    # Whether the centre makes its own; else somebody (cert-manager, say) puts them where section [web] looks for them.
    own: bool = False
    # Where the replicas share them; in the installation's namespace.
    secret: Name = "aliquot-tls"  # noqa: S105 - its name
    # Where this replica puts what it serves with; point section [web] there.
    folder: FilePath = "/run/aliquot/tls"
    # The Service by which the API server calls the webhook, and kube-scheduler the extender.
    service: Name = "aliquot-scheduler"
    # By what else the replicas are called: names and addresses.
    hosts: tuple[Name, ...] = ()
    # The configurations that the API server's trust is written into.
    webhooks: tuple[Name, ...] = ("aliquot",)

    def plan(self, names: Names) -> Plan:
        """What certificates this makes."""
        # Every command reads the settings, and the node's image has no cryptography.
        from aliquot_scheduler.certificates.keeping import Plan  # noqa: PLC0415 - only where it is there

        service = f"{self.service}.{names.namespace}"
        hosts = dict.fromkeys((CENTRE, self.service, service, f"{service}.svc", *self.hosts))
        return Plan(server=CENTRE, hosts=tuple(hosts), client=KUBE_SCHEDULER)
