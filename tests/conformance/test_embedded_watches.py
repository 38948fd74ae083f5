"""The embedded server keeps the contract of watches."""

from conformance.contracts.watches import WatchesContract


class TestWatches(WatchesContract):
    """Against the embedded server."""
