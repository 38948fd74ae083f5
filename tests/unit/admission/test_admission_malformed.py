"""Whatever the webhook is sent, it answers or says that it is malformed: never a 500."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.admission.review import MalformedReviewError
from support.admitting import Json, answered, container, review, written
from support.reviews_asked import ASKS, MALFORMED, admission, validated


@pytest.mark.parametrize("row", MALFORMED)
def test_what_is_no_review_is_malformed(row: str) -> None:
    """One kind of error, which becomes a 400."""
    for ask in (admission().mutating, validated):
        with pytest.raises(MalformedReviewError):
            ask(MALFORMED[row])


NULLS: dict[str, Json] = {
    "labels": {"metadata": {"name": "train", "labels": None, "annotations": None, "ownerReferences": None}},
    "gates": {"schedulingGates": None},
    "no init containers": {"initContainers": None},
    "affinity": {"affinity": None, "nodeSelector": None, "tolerations": None},
    "resources": {"containers": [{**container(compute="30", memory="8k"), "resources": None}]},
    "limits": {
        "containers": [
            container(memory="8k"),
            {**container(), "name": "b", "resources": {"limits": None, "requests": {"aliquot.dev/memory": "8k"}}},
        ]
    },
}


@pytest.mark.parametrize("row", NULLS)
def test_what_is_null_is_read_as_left_out(row: str) -> None:
    """Both endpoints say what they say of the same pod without it, old or new; and so of who asks."""
    changes = NULLS[row]
    pod = written(container(compute="30", memory="8k"))
    pod["metadata"] |= {"creationTimestamp": None}
    nulled = {**pod, **{key: changes[key] for key in changes if key == "metadata"}}
    nulled["spec"] = {**pod["spec"], **{key: value for key, value in changes.items() if key != "metadata"}}
    bare = json.loads(json.dumps(nulled), object_hook=lambda found: {k: v for k, v in found.items() if v is not None})
    for ask in (admission().mutating, validated):
        for old in (None, nulled):
            expected = answered(ask(review(bare, old=bare if old else None)))
            assert answered(ask(review(nulled, old=old))) == expected
        asked = json.loads(review(nulled))
        asked["request"]["userInfo"]["groups"] = None
        assert answered(ask(json.dumps(asked).encode())) == answered(ask(review(bare)))


@pytest.mark.parametrize("amount", [b"1e999999", b"-0.0", b"9" * 400, b'"' + b"9" * 1_000_000 + b'"', b"1E-400"])
def test_huge_numbers_are_refused_or_malformed(amount: bytes) -> None:
    """Never computed with."""
    for ask in (admission().mutating, validated):
        try:
            answer = answered(ask(review(ASKS).replace(b'"30"', amount)))
        except MalformedReviewError:
            continue
        assert answer["allowed"] is False
        assert len(answer["status"]["message"]) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PATHS = [
    ["metadata"],
    ["metadata", "labels"],
    ["metadata", "annotations"],
    ["spec"],
    ["spec", "nodeName"],
    ["spec", "affinity"],
    ["spec", "affinity", "nodeAffinity"],
    ["spec", "schedulingGates"],
    ["spec", "schedulerName"],
    ["spec", "containers"],
    ["spec", "containers", 0],
    ["spec", "containers", 0, "resources"],
    ["spec", "containers", 0, "resources", "limits"],
    ["spec", "containers", 0, "resources", "limits", "aliquot.dev/compute"],
    ["spec", "initContainers"],
]


@given(changes=st.lists(st.tuples(st.sampled_from(PATHS), JSON), min_size=1, max_size=2), update=st.booleans())
def test_whatever_stands_in_a_pod_there_is_an_answer(
    *, changes: list[tuple[list[str | int], object]], update: bool
) -> None:
    """Allowed, refused or malformed; no other exception leaves the code."""
    pod = json.loads(json.dumps(written(container(memory="800"), nodeName="n1", affinity={"nodeAffinity": {}})))
    for path, value in changes:
        place = pod
        try:
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    for ask in (admission(("L4",)).mutating, partial(validated, models=("L4",))):
        try:
            answer = answered(ask(review(pod, old=ASKS if update else None)))
        except MalformedReviewError:
            continue
        assert answer["allowed"] in (True, False)
