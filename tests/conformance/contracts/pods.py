"""Pods on any API server: how they are made, changed, bound, and go."""

from __future__ import annotations

from conformance.contracts.pod_bindings import PodBindingsContract
from conformance.contracts.pod_changes import PodChangesContract
from conformance.contracts.pod_ends import PodEndsContract
from conformance.contracts.pod_specs import PodSpecsContract


class PodsContract(PodSpecsContract, PodChangesContract, PodBindingsContract, PodEndsContract):
    """The life of a pod, as the API server sees it."""
