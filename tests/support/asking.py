"""Pods that ask for slices, written the short way: `pod(app(compute=30, memory=8000), notes={"gpus": "2"})`."""

from __future__ import annotations

from collections.abc import Mapping

from aliquot_core.names import Names
from aliquot_core.objects import Container, ObjectMeta, Pod, PodSpec, Quantity, ResourceRequirements

NAMES = Names()


def app(
    name: str = "main",
    *,
    compute: Quantity | None = None,
    memory: Quantity | None = None,
    best_effort: Quantity | None = None,
    requests: Mapping[str, Quantity] | None = None,
    sidecar: bool = False,
    names: Names = NAMES,
) -> Container:
    """A container with these limits; what is None is left out. Requests are named by their short names."""
    limits = {names.compute: compute, names.memory: memory, names.best_effort: best_effort}
    return Container(
        name=name,
        resources=ResourceRequirements(
            limits={key: value for key, value in limits.items() if value is not None},
            requests={names.of(short): value for short, value in (requests or {}).items()},
        ),
        restart_policy="Always" if sidecar else None,
    )


def pod(
    *apps: Container,
    inits: tuple[Container, ...] = (),
    notes: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    node: str = "",
    names: Names = NAMES,
) -> Pod:
    """A pod of these containers; annotations and labels are named by their short names."""
    return Pod(
        metadata=ObjectMeta(
            name="pod",
            namespace="team",
            uid="uid-1",
            annotations={names.of(short): text for short, text in (notes or {}).items()},
            labels={names.of(short): text for short, text in (labels or {}).items()},
        ),
        spec=PodSpec(node_name=node, containers=list(apps), init_containers=list(inits)),
    )
