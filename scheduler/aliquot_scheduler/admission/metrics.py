"""How questions to the webhook went and how long they took, for Prometheus."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import CollectorRegistry, Histogram

# From a small pod to the 5 s after which the API server gives up.
_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 2.5, 5.0)


class Endpoint(StrEnum):
    """What may be asked, as the address is called."""

    MUTATE = "mutate"
    VALIDATE = "validate"
    VALIDATE_QUEUE = "validate-queue"
    SPARE = "spare"


class Outcome(StrEnum):
    """How a question ended."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    # Neither a leader nor the API server says: of a pod that is evicted by priority, which then goes.
    UNJUDGED = "unjudged"
    # Nothing that an API server sends, or not all of it.
    MALFORMED = "malformed"
    # Too many large ones came at once.
    CROWDED = "crowded"
    # No answer could be given: the API server says nothing of queues, or the fault is ours.
    FAILED = "failed"


class AdmissionMetrics:
    """One series per endpoint and outcome, from the start: one that begins with its first event has had no increase."""

    def __init__(self, registry: CollectorRegistry) -> None:
        duration = Histogram(
            "aliquot_centre_admission_duration_seconds",
            "How long the API server's questions to the webhook took to answer, by how they ended.",
            labelnames=("endpoint", "outcome"),
            buckets=_BOUNDS,
            registry=registry,
        )
        self._durations = {
            (endpoint, outcome): duration.labels(endpoint, outcome) for endpoint in Endpoint for outcome in Outcome
        }

    def observe(self, endpoint: Endpoint, outcome: Outcome, seconds: float) -> None:
        """One question ended."""
        self._durations[endpoint, outcome].observe(seconds)
