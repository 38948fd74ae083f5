"""Defaults that objects share are watched."""

from __future__ import annotations

from aliquot_core.objects import Container, Node, NodeStatus, Pod
from support.shared_defaults import mended_defaults


def test_a_default_that_was_written_into_is_named_and_mended() -> None:
    """Once; afterwards all is as before, and what an object has of its own is its own business."""
    Container(name="a").resources.requests["cpu"] = "3"
    Pod().spec.containers.append(Container(name="b"))
    own = Node(status=NodeStatus())
    own.status.capacity["cpu"] = "8"
    assert sorted(mended_defaults()) == ["Container.resources", "Pod.spec"]
    assert mended_defaults() == []
    assert Container(name="c").resources.requests == {}
    assert Pod().spec.containers == []
    assert own.status.capacity == {"cpu": "8"}
