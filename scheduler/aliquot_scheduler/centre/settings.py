"""The centre's settings."""

from __future__ import annotations

import ipaddress
import socket
from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class CentreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[scheduler]`."""

    # For people: who leads. In the Deployment it is the pod's name.
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = msgspec.field(default_factory=socket.gethostname)
    # Empty: the service account that the pod has.
    kubeconfig: str = ""
    # Where followers reach this replica when it leads, such as https://10.0.0.5:10943; empty: it has no followers.
    address: str = ""
    # Watches that were silent for longer may be dead: nothing is decided then. API servers say something each minute.
    stale: Seconds = 150.0
    # How long room is kept for a pod that was let through and is not bound; then it waits for a new turn.
    promise: Seconds = 30.0
    # How long a pod may go on using more than it was granted, once its node has given it up, before it is evicted.
    over_use_grace: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    # Whether the webhook keeps kube-scheduler from evicting pods with slices by priority: the chart's
    # `evictionByPriority: Deny`. Pods that wait for such are told so then.
    evictions_denied: bool = False

    @property
    def url(self) -> str:
        """The address with the brackets that an IPv6 one wants; the Deployment knows its pod's without them."""
        scheme, between, rest = self.address.partition("://")
        host, colon, port = rest.rpartition(":")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return self.address
        return f"{scheme}{between}[{host}]{colon}{port}"
