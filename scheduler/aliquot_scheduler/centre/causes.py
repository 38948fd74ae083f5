"""What pods were evicted for: the words by which the page tells of the counts that the metrics tell of."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Each goes on with "evicted"."""

    OTHERS = "for others"
    BUDGET = "for others, against a disruption budget"
    MOVED = "to be placed elsewhere"
    OVER_USE = "for over-use"
    BROKEN = "as their group was broken"
    PRIORITY = "by kube-scheduler, for a higher priority"
