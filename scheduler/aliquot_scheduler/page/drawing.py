"""From an address and a state to a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.page.cluster_view import ClusterView, gpu_view, node_view, paused
from aliquot_scheduler.page.history_view import history_view
from aliquot_scheduler.page.lists import application_view, applications_view, queues_view, waiting_view
from aliquot_scheduler.page.model import Owner, Sample, State
from aliquot_scheduler.page.pod_view import pod_view
from aliquot_scheduler.page.views import View

# What stands after /page in an address, step by step.
Steps = tuple[str, ...]


class Drawing:
    """Draws any view; what it drew before it draws again only where something changed. For one thread at a time."""

    def __init__(self, *, names: Names) -> None:
        self._names = names
        self._cluster = ClusterView()

    def view(self, steps: Steps, state: State, *, pods: Mapping[str, Pod], samples: Sequence[Sample]) -> View | None:
        """The view at an address; None where there is none such. `pods` are objects by namespace and name."""
        view = self._drawn(steps, state, pods=pods, samples=samples)
        return None if view is None else msgspec.structs.replace(view, pieces=(paused(state), *view.pieces))

    def _drawn(self, steps: Steps, state: State, *, pods: Mapping[str, Pod], samples: Sequence[Sample]) -> View | None:
        state_alone = {"queues": queues_view, "waiting": waiting_view, "applications": applications_view}
        match steps:
            case ():
                return self._cluster.view(state)
            case ("history",):
                return history_view(samples)
            case (name,) if name in state_alone:
                return state_alone[name](state)
            case _:
                return self._of_one(steps, state, pods=pods)

    def _of_one(self, steps: Steps, state: State, *, pods: Mapping[str, Pod]) -> View | None:
        match steps:
            case ("nodes", name):
                return node_view(name, state)
            case ("gpus", node, uuid):
                return gpu_view(node, uuid, state)
            case ("pods", namespace, name):
                return pod_view(namespace, name, state, pods=pods, names=self._names)
            case ("applications", namespace, kind, name):
                return application_view(Owner(namespace=namespace, kind=kind, name=name), state)
            case _:
                return None
