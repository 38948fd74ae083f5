"""Our client and the embedded API server understand each other."""

from __future__ import annotations

from conformance.contracts.kube_client import KubeClientContract, client, transport

__all__ = ["TestKubeClient", "client", "transport"]


class TestKubeClient(KubeClientContract):
    """Against the embedded server."""
