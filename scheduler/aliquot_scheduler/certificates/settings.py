"""What an operator can set of the centre's own certificates."""

from __future__ import annotations

from typing import Annotated

import msgspec


class CertificateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[certificates]`."""

    # Make and renew them, in a Secret that the replicas share; else they are mounted, from cert-manager say.
    own: bool = False
    secret: Annotated[str, msgspec.Meta(min_length=1, max_length=253)] = "aliquot-tls"  # noqa: S105 - a Secret's name
    # What kube-scheduler and the API server call the replicas by.
    hosts: tuple[str, ...] = ("aliquot-scheduler.aliquot-system.svc", "aliquot-scheduler")
    # The configurations that call the webhook, and are told whom to trust.
    webhooks: tuple[str, ...] = ("aliquot",)
