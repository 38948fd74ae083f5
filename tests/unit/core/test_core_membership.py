"""Queue and group: labels say which, annotations say how the group starts."""

from __future__ import annotations

import pytest

from aliquot_core.errors import UserError
from aliquot_core.membership import LARGEST_GROUP, Group, Topology, parse_group, parse_queue
from aliquot_core.objects import ObjectMeta
from support.asking import NAMES


def meta(labels: dict[str, str], notes: dict[str, str] | None = None) -> ObjectMeta:
    """Labels and annotations by their short names."""
    return ObjectMeta(
        labels={NAMES.of(short): text for short, text in labels.items()},
        annotations={NAMES.of(short): text for short, text in (notes or {}).items()},
    )


@pytest.mark.parametrize("queue", ["research", "a", "7", "team-a.vision", "x" * 63])
def test_a_queue_is_named_by_its_label(queue: str) -> None:
    """Whatever a Queue can be called."""
    assert parse_queue(meta({"queue": queue}), names=NAMES) == queue


@pytest.mark.parametrize("labels", [{}, {"queue": ""}])
def test_without_a_label_the_namespace_decides(labels: dict[str, str]) -> None:
    """An empty label says no more than none."""
    assert parse_queue(meta(labels), names=NAMES) == ""


@pytest.mark.parametrize("queue", ["Team", "a_b", "-a", "a-", "a..b", ".a", "a b", "a\n", "x" * 64, "é"])
def test_what_no_queue_can_be_called_is_refused(queue: str) -> None:
    """A pod that waits in a queue that can't exist would wait for ever."""
    with pytest.raises(UserError) as caught:
        parse_queue(meta({"queue": queue}), names=NAMES)
    assert caught.value.where == "label aliquot.dev/queue"
    assert "write the name of a Queue" in caught.value.remedy


GROUPS = {
    "all or nothing": ({"group-size": "4"}, Group(name="train", size=4, minimum=4)),
    "elastic": ({"group-size": "4", "group-min": "2"}, Group(name="train", size=4, minimum=2)),
    "elastic down to one": ({"group-size": "4", "group-min": "1"}, Group(name="train", size=4, minimum=1)),
    "a minimum that is the size": ({"group-size": "4", "group-min": "4"}, Group(name="train", size=4, minimum=4)),
    "one": ({"group-size": "1"}, Group(name="train", size=1, minimum=1)),
    "many": ({"group-size": "100k"}, Group(name="train", size=LARGEST_GROUP, minimum=LARGEST_GROUP)),
    "on one node": (
        {"group-size": "2", "group-topology": "node"},
        Group(name="train", size=2, minimum=2, topology=Topology.NODE),
    ),
    "on one island": (
        {"group-size": "2", "group-topology": "nvlink"},
        Group(name="train", size=2, minimum=2, topology=Topology.NVLINK),
    ),
    "apart": (
        {"group-size": "2", "group-topology": "spread"},
        Group(name="train", size=2, minimum=2, topology=Topology.SPREAD),
    ),
}


@pytest.mark.parametrize("row", GROUPS)
def test_a_group_is_read_with_its_defaults(row: str) -> None:
    """Without a minimum all must be there; without a topology they lie anywhere."""
    notes, group = GROUPS[row]
    assert parse_group(meta({"group": "train"}, notes), names=NAMES) == group


@pytest.mark.parametrize("labels", [{}, {"group": ""}])
def test_a_pod_without_the_label_is_in_no_group(labels: dict[str, str]) -> None:
    """It starts by itself."""
    assert parse_group(meta(labels), names=NAMES) is None


BAD_GROUPS = {
    "no size": ("train", {}, "label aliquot.dev/group", "how many pods", "aliquot.dev/group-size"),
    "a minimum without size": ("train", {"group-min": "2"}, "label aliquot.dev/group", "how many pods", "group-size"),
    "size 0": ("train", {"group-size": "0"}, "annotation aliquot.dev/group-size", "less than 1", "at least 1"),
    "size in words": ("train", {"group-size": "all"}, "annotation aliquot.dev/group-size", "'all'", "whole pods"),
    "a huge size": ("train", {"group-size": "100001"}, "annotation aliquot.dev/group-size", "100001", "group's size"),
    "minimum 0": (
        "train",
        {"group-size": "4", "group-min": "0"},
        *("annotation aliquot.dev/group-min", "0 is less than 1", "at least 1"),
    ),
    "minimum above size": (
        "train",
        {"group-size": "4", "group-min": "5"},
        *("annotation aliquot.dev/group-min", "5 is more than the group's 4 pods", "write 1 to 4"),
    ),
    "an unknown topology": (
        "train",
        {"group-size": "4", "group-topology": "rack"},
        *("annotation aliquot.dev/group-topology", "'rack' is unknown", "write node, nvlink or spread"),
    ),
    "a size without group": ("", {"group-size": "4"}, "annotation aliquot.dev/group-size", "in none", "set the label"),
    "a minimum without group": ("", {"group-min": "4"}, "annotation aliquot.dev/group-min", "in none", "set the label"),
    "a topology without group": (
        "",
        {"group-topology": "node"},
        *("annotation aliquot.dev/group-topology", "in none", "set the label"),
    ),
}


@pytest.mark.parametrize("row", BAD_GROUPS)
def test_a_group_that_could_never_start_is_refused(row: str) -> None:
    """With the place, the value and what to write."""
    group, notes, where, wrong, advice = BAD_GROUPS[row]
    with pytest.raises(UserError) as caught:
        parse_group(meta({"group": group} if group else {}, notes), names=NAMES)
    assert caught.value.where == where
    assert wrong in caught.value.what
    assert advice in caught.value.remedy
