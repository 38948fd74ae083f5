"""PodDisruptionBudgets, as far as Aliquot reads them: which pods one is about, and how many of them may go now."""

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


class _Status(_Part, frozen=True, kw_only=True):
    disruptions_allowed: int = 0


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


# For other threads it is to be made here (`objects.py` says why).
msgspec.json.Decoder(PodDisruptionBudget)
