"""The embedded server keeps the contract of pods."""

from conformance.contracts.pods import PodsContract


class TestPods(PodsContract):
    """Against the embedded server."""
