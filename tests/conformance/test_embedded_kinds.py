"""The embedded server keeps the contract of kinds."""

from conformance.contracts.kinds import KindsContract


class TestKinds(KindsContract):
    """Against the embedded server."""
