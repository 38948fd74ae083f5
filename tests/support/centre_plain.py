"""Pods without slices in a town: kube-scheduler nominates, binds and forgets them, as it alone decides."""

from __future__ import annotations

from aliquot_core.objects import Pod
from support.centre import make_pod
from support.centre_api import replace
from support.centre_town import NODES, Town

# Names that no pod with slices has.
PLAIN = "pqr"
_CPU = ("1", "2")


class PlainTown(Town):
    """Beside those who share GPUs others lie, or are to."""

    def plain(self) -> None:
        """One comes, is nominated, for another node too, or no more, is bound, ends, or goes."""
        name = self.chance.choice(PLAIN)
        pod = self.api.pods.get(name)
        if pod is None:
            self._create(name)
        elif not self._goes_on(pod):
            self.api.delete(name)

    def _create(self, name: str) -> None:
        self.made += 1
        asked = {"requests": {"cpu": self.chance.choice(_CPU), "memory": "1Gi"}}
        pod = make_pod(f"{name}{self.made}", {"name": "main", "resources": asked})
        self.api.put(replace(pod, metadata=replace(pod.metadata, name=name)))

    def _goes_on(self, pod: Pod) -> bool:
        what = self.chance.choice(("nominate", "nominate", "nominate", "bind", "forget", "end", "delete"))
        if pod.ended or what == "delete":
            return False
        if what == "end":
            self.api.put(replace(pod, status=replace(pod.status, phase="Succeeded")))
        elif not pod.spec.node_name:
            node = "" if what == "forget" else self.chance.choice(NODES)
            # Who is bound keeps its nomination, as the API server leaves it.
            bound = replace(pod.spec, node_name=node if what == "bind" else "")
            meant = pod.status.nominated_node_name if what == "bind" else node
            self.api.put(replace(pod, spec=bound, status=replace(pod.status, nominated_node_name=meant)))
        return True
