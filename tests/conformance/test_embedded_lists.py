"""The embedded server keeps the contract of lists."""

from conformance.contracts.lists import ListsContract


class TestLists(ListsContract):
    """Against the embedded server."""
