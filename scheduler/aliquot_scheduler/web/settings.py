"""What an operator can set of the centre's HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec

from aliquot_core.settings import SHORTEST, FilePath, Seconds
from aliquot_scheduler.certificates.settings import CENTRE, KUBE_SCHEDULER

Address = Annotated[str, msgspec.Meta(min_length=1)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]

# Somebody waits for it: whoever replaces a node, and the next version of the centre.
Farewell = Annotated[float, msgspec.Meta(ge=SHORTEST, le=60.0)]

# Of both families, as far as the machine has them.
EVERY = "*"


class WebSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[web]` of the settings; a port of 0 is any that is free."""

    # Extender and webhook, over TLS: API server and kube-scheduler call from other machines. `*` is every address of
    # this one, IPv4 and IPv6.
    address: Address = EVERY
    port: Port = 10943
    # Metrics and probes, in plain HTTP: the pod's own address where Prometheus is to read them.
    status_address: Address = "127.0.0.1"
    status_port: Port = 10944
    certificate: FilePath = "/etc/aliquot/tls/tls.crt"
    key: FilePath = "/etc/aliquot/tls/tls.key"
    # Who may have signed the certificates of kube-schedulers and of the centre's replicas.
    authority: FilePath = "/etc/aliquot/tls/ca.crt"
    # Names in client certificates (CN, or a DNS or URI one of SAN) that may ask the extender.
    allowed_clients: tuple[str, ...] = (KUBE_SCHEDULER, CENTRE)
    # A mounted Secret changes within a minute or so; looking costs three small reads.
    look_at_files: Seconds = 10.0
    # How long a replica that was told to end serves on while somebody is connected, each answer the last there.
    drain: Farewell = 3.0
    # How long what is under way may take once the centre was told to end.
    leave: Farewell = 5.0
