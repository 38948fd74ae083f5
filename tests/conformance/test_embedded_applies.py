"""The embedded server keeps the contract of server-side apply."""

from conformance.contracts.applies import AppliesContract


class TestApplies(AppliesContract):
    """Against the embedded server."""
