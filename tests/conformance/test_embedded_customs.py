"""The embedded server keeps the contract of custom kinds."""

from conformance.contracts.customs import CustomsContract


class TestCustoms(CustomsContract):
    """Against the embedded server."""
