"""How families of samples are begun, and the units in which they tell."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.metrics_core import GaugeMetricFamily

MIB = 1024 * 1024
WHOLE = 100


def gauge(name: str, text: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    """A family of ours that goes up and down."""
    return GaugeMetricFamily(f"aliquot_{name}", text, labels=labels)
