"""What can go wrong with a test cluster."""

from __future__ import annotations


class HarnessError(Exception):
    """The root of them all."""


class ComponentError(HarnessError):
    """A process of the cluster ended or never answered; the message ends with the tail of its log."""


class WaitTimeoutError(HarnessError):
    """What was waited for did not come in time."""


class MissingError(HarnessError):
    """This machine lacks something; the message says what, and how to get it."""


class ApiError(HarnessError):
    """The API server refused a request."""

    def __init__(self, *, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
