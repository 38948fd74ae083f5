"""How extender calls went and how long they took, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

from aliquot_scheduler.extender.verbs import Outcome, Verb

# From a filter among a few nodes to kube-scheduler's patience of 5 s.
_BOUNDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 2.5, 5.0)


class CallMetrics:
    """One series per verb and outcome, from the start: one that begins with its first event has had no increase."""

    def __init__(self, registry: CollectorRegistry) -> None:
        duration = Histogram(
            "aliquot_centre_extender_duration_seconds",
            "How long kube-scheduler's calls took to answer, by how they ended.",
            labelnames=("verb", "outcome"),
            buckets=_BOUNDS,
            registry=registry,
        )
        self._durations = {(verb, outcome): duration.labels(verb, outcome) for verb in Verb for outcome in Outcome}

    def observe(self, verb: Verb, outcome: Outcome, seconds: float) -> None:
        """One call ended."""
        self._durations[verb, outcome].observe(seconds)
