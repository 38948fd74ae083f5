"""The embedded server keeps the contract of limits."""

from conformance.contracts.limits import LimitsContract


class TestLimits(LimitsContract):
    """Against the embedded server."""
