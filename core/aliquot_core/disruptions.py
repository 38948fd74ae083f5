"""PodDisruptionBudgets, as far as Aliquot reads them: which pods one is about, and how many of them may go now.

As the API server reads them when it is asked to evict: it looks at no budget of a pod that has not begun to run, and of
one that is not ready by what its one budget says of such pods.
"""

from __future__ import annotations

import msgspec

from aliquot_core.node_rules import Requirement, Term, matches
from aliquot_core.objects import ObjectMeta, Pod


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False, omit_defaults=True):
    """Common settings."""


class LabelSelector(_Part, frozen=True, kw_only=True):
    """Which pods; one that says nothing means all of its namespace."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class _Spec(_Part, frozen=True, kw_only=True):
    # Left out, it is about no pod.
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class _Status(_Part, frozen=True, kw_only=True):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class PodDisruptionBudget(_Part, frozen=True, kw_only=True):
    """One of them."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def covers(self, pod: Pod) -> bool:
        """Whether it is about this pod."""
        selector, labels = self.spec.selector, pod.metadata.labels
        if selector is None or pod.metadata.namespace != self.metadata.namespace:
            return False
        if any(labels.get(key) != value for key, value in selector.match_labels.items()):
            return False
        term = Term(match_expressions=selector.match_expressions)
        return not selector.match_expressions or matches(term, name=pod.metadata.name, labels=labels)

    def lets_unready_go(self) -> bool:
        """Whether those of its pods that are not ready go without being counted."""
        status = self.status
        has_enough = 0 < status.desired_healthy <= status.current_healthy
        return has_enough or self.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"


def goes_uncounted(pod: Pod) -> bool:
    """Whether the API server evicts it whatever budgets say: it does not run, or no more, or is on its way out."""
    return pod.status.phase in {"Pending", "Succeeded", "Failed"} or pod.metadata.deletion_timestamp is not None


def is_ready(pod: Pod) -> bool:
    """Whether it says so."""
    return any((one.type, one.status) == ("Ready", "True") for one in pod.status.conditions)


# For other threads it is to be made here (`objects.py` says why).
msgspec.json.Decoder(PodDisruptionBudget)
