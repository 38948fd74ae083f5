"""Pods of a namespace that an operator labels as running the cluster, or no more: who goes by that hears of each anew.

By the same subscribers as the watch of pods has, so that one pod which trips a defect costs nobody else here either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aliquot_core.names import Names
from aliquot_core.objects import Namespace, Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_scheduler.extender.preempting import is_labelled


class OfTheCluster:
    """Knows nothing: hears it."""

    def __init__(
        self, *, names: Names, pods: Callable[[], Mapping[str, Pod]], tell: Sequence[Callable[[Change[Pod]], None]]
    ) -> None:
        """`pods` are all there are."""
        self._names, self._pods, self._tell = names, pods, tell

    def namespace_changed(self, change: Change[Namespace]) -> None:
        """Take in what the watch tells; by then it is known which labels a namespace has."""
        match change:
            case Modified(old=old, new=new) if self._is_labelled(old) != self._is_labelled(new):
                self._seen_anew(new.metadata.name)
            case Added(new=namespace) | Deleted(old=namespace) if self._is_labelled(namespace):
                self._seen_anew(namespace.metadata.name)

    def _is_labelled(self, namespace: Namespace) -> bool:
        return is_labelled(namespace.metadata.labels, names=self._names)

    def _seen_anew(self, namespace: str) -> None:
        for pod in [one for one in self._pods().values() if one.metadata.namespace == namespace]:
            for tell in self._tell:
                tell(Modified(old=pod, new=pod))
