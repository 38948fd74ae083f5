"""The embedded server keeps the contract of webhooks."""

from conformance.contracts.webhooks import WebhooksContract


class TestWebhooks(WebhooksContract):
    """Against the embedded server."""
