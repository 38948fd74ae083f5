"""The embedded server keeps the contract of patches."""

from conformance.contracts.patches import PatchesContract


class TestPatches(PatchesContract):
    """Against the embedded server."""
