"""The embedded server keeps the contract of objects."""

from conformance.contracts.objects import ObjectsContract


class TestObjects(ObjectsContract):
    """Against the embedded server."""
