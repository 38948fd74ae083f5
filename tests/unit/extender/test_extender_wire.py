"""kube-scheduler's bytes to questions, and answers to what kube-scheduler reads."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aliquot_scheduler.extender import wire
from aliquot_scheduler.extender.decisions import BEST_GRADE, Filtered
from aliquot_scheduler.extender.echo import Echo
from aliquot_scheduler.extender.wire import (
    MalformedCallError,
    NodesUncachedError,
    Placing,
    coarse,
    decode_binding,
    decode_preemption,
    encode_bound,
    encode_filtered,
    encode_grades,
    encode_victims,
)
from support.centre_http import BINDING, POD, args


def decode_placing(body: bytes) -> Placing:
    """Of somebody who was answered nothing yet."""
    return wire.decode_placing(body, echo=Echo())


DECODERS = (decode_placing, decode_preemption, decode_binding)


def written(thing: Any) -> bytes:
    """As it travels."""
    return json.dumps(thing).encode()


def test_a_pod_and_its_nodes_are_read() -> None:
    """Names as they come, the pod as far as we read pods."""
    asked = decode_placing(written(args("n2", "n1")))
    assert (asked.pod.key, asked.pod.metadata.uid, asked.nodes) == ("team/p", "u-1", ["n2", "n1"])
    assert asked.pod.spec.containers[0].resources.limits == {"aliquot.dev/compute": "30"}


def test_names_that_were_just_answered_are_known_again_and_no_others() -> None:
    """As Go writes them; the same sequence comes back, and of other names, or in another order, what is written."""
    echo, answered = Echo(), ["n2", "n1"]
    encode_filtered(Filtered(nodes=answered), echo=echo)
    for names, same in ((["n2", "n1"], True), (["n1", "n2"], False), (["n2"], False), (["n2", "n1"], True)):
        body = json.dumps(args(*names), separators=(",", ":")).encode()
        found = wire.decode_placing(body, echo=echo).nodes
        assert (found, found is answered) == (names, same)
    encode_filtered(Filtered(nodes=["n3"]), echo=echo)
    assert wire.decode_placing(body, echo=echo).nodes is not answered


@pytest.mark.parametrize("body", [{"Pod": POD}, {"Pod": POD, "Nodes": None, "NodeNames": None}])
def test_no_names_are_no_nodes(body: Any) -> None:
    """Go writes an empty pointer as null."""
    assert decode_placing(written(body)).nodes == []


def test_whole_nodes_are_refused_with_the_setting_that_spares_them() -> None:
    """They are not even decoded."""
    for decode, body in (
        (decode_placing, {"Pod": POD, "Nodes": {"items": [{"metadata": 5}]}, "NodeNames": None}),
        (decode_preemption, {"Pod": POD, "NodeNameToVictims": {"n1": {"Pods": [POD]}}}),
    ):
        with pytest.raises(NodesUncachedError, match="nodeCacheCapable: true"):
            decode(written(body))


def test_victims_are_read_through_every_null_that_go_may_write() -> None:
    """A pointer, a list and an entry of it may be null."""
    offered = {
        "n1": {"Pods": [{"UID": "a"}, None, {"UID": "b"}], "NumPDBViolations": 2},
        "n2": {"Pods": None, "NumPDBViolations": 0},
        "n3": None,
    }
    asked = decode_preemption(written({"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": offered}))
    assert asked.offered == {"n1": ["a", "b"], "n2": [], "n3": []}
    assert asked.violations == {"n1": 2, "n2": 0, "n3": 0}
    assert decode_preemption(written({"Pod": POD, "NodeNameToMetaVictims": None})).offered == {}


VICTIMS = {"n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": 1}}


@pytest.mark.parametrize(
    ("decode", "body"),
    [
        (decode_placing, args("n2", "n1")),
        (decode_preemption, {"Pod": POD, "NodeNameToMetaVictims": VICTIMS}),
        (decode_binding, BINDING),
    ],
)
def test_what_a_later_one_says_beside_is_passed_over(decode: Any, body: Any) -> None:
    """A kube-scheduler, or a replica that passes a call on; what is known means what it did."""
    more = {"Later": {"more": [1]}}
    beside = {key: {**there, **more} if key == "Pod" else there for key, there in body.items()}
    if victims := body.get("NodeNameToMetaVictims"):
        pods = [{**pod, **more} for pod in victims["n1"]["Pods"]]
        beside["NodeNameToMetaVictims"] = {"n1": {**victims["n1"], **more, "Pods": pods}}
    assert decode(written({**beside, **more})) == decode(written(body))


def test_a_binding_is_read() -> None:
    """By Go's names."""
    binding = decode_binding(written(BINDING))
    assert (binding.namespace, binding.name, binding.uid, binding.node) == ("team", "p", "u-1", "n1")


@pytest.mark.parametrize("key", BINDING)
@pytest.mark.parametrize("value", ["", None, 5, ...])
def test_a_binding_that_leaves_something_out_is_malformed(key: str, value: object) -> None:
    """Without a uid it could bind a pod made again under the name."""
    rest = {name: text for name, text in BINDING.items() if name != key}
    with pytest.raises(MalformedCallError):
        decode_binding(written(rest if value is ... else {**rest, key: value}))


@pytest.mark.parametrize("key", ["name", "namespace", "uid"])
def test_a_pod_that_is_nobody_is_malformed(key: str) -> None:
    """Nothing could be reserved for it."""
    nobody = {**POD, "metadata": {**POD["metadata"], key: ""}}
    for decode in (decode_placing, decode_preemption):
        with pytest.raises(MalformedCallError, match="a pod needs"):
            decode(written({"Pod": nobody}))


MALFORMED = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "null": b"null",
    "no pod": written({"NodeNames": ["n1"]}),
    "null for a pod": written({"Pod": None, "NodeNames": ["n1"]}),
    "a list for a pod": written({"Pod": [], "PodName": []}),
    "numbers for names": written({**args(), "NodeNames": [1], "NodeNameToMetaVictims": {"n": {"Pods": [1]}}}),
    "not UTF-8": written(args("n1")).replace(b"team", b"\xff") + b"\xff",
    "half a surrogate": written({**args("n1"), **BINDING}).replace(b"team", b"\\ud800"),
    "NaN": written(args("n1")).replace(b'"30"', b"NaN"),
    "infinity": written(args("n1")).replace(b'"30"', b"-Infinity"),
    "a huge number": written(args("n1")).replace(b'{"name": "main"', b'{"restartCount": 1, "name": 1e400'),
    "deep": b"[" * 100_000,
    "deep in a pod": b'{"Pod":{"spec":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}}",
    "deep in nodes": b'{"Nodes":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "two of them": written(args("n1")) * 2,
}


@pytest.mark.parametrize("row", MALFORMED)
def test_what_no_kube_scheduler_sends_is_malformed(row: str) -> None:
    """One kind of error, whichever verb it is sent to."""
    for decode in DECODERS:
        with pytest.raises(MalformedCallError):
            decode(MALFORMED[row])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims", *BINDING]
CALLS = st.dictionaries(st.sampled_from(KEYS), JSON | st.just(POD), max_size=4).map(written) | st.binary(max_size=60)


@given(body=CALLS)
def test_whatever_comes_is_read_or_is_malformed(body: bytes) -> None:
    """No other exception leaves a decoder."""
    for decode in DECODERS:
        try:
            read = decode(body)
        except (MalformedCallError, NodesUncachedError):
            continue
        assert isinstance(read, msgspec.Struct)


# --- answers ---------------------------------------------------------------------------------------------------------
def test_a_filter_s_answer_bears_go_s_names() -> None:
    """kube-scheduler reads the whole nodes of an answer without names, so names are always there."""
    filtered = Filtered(nodes=["n1"], failed={"n2": "full"}, unresolvable={"n3": "no GPU"}, error="")
    assert json.loads(encode_filtered(filtered, echo=Echo())) == {
        "NodeNames": ["n1"],
        "FailedNodes": {"n2": "full"},
        "FailedAndUnresolvableNodes": {"n3": "no GPU"},
        "Error": "",
    }
    assert json.loads(encode_filtered(Filtered(error="why"), echo=Echo()))["NodeNames"] == []


def test_grades_are_written_fine_and_coarse() -> None:
    """Fine ones as they are; coarse ones on the documented scale, in the same order."""
    nodes, grades = ["n1", "n2", "n3"], [BEST_GRADE, 451, 0]
    assert json.loads(encode_grades(nodes, grades)) == [
        {"Host": "n1", "Score": 900},
        {"Host": "n2", "Score": 451},
        {"Host": "n3", "Score": 0},
    ]
    assert [coarse(grade) for grade in grades] == [10, 5, 0]
    assert encode_grades([], []) == b"[]"


LETTERS = st.sampled_from('ab"\\,:{\n\x7f\u00e9')


@example(grades={'a"b': 1})
@example(grades={"a\\b": 1})
@given(grades=st.dictionaries(st.text(LETTERS, min_size=1, max_size=3), st.integers(min_value=0, max_value=BEST_GRADE)))
def test_grades_are_the_json_that_they_would_be_or_the_call_is_refused(grades: dict[str, int]) -> None:
    """They are put together from pieces: a name may hold nothing that JSON writes otherwise."""
    try:
        written = encode_grades(list(grades), list(grades.values()))
    except MalformedCallError:
        assert any(json.dumps(name, ensure_ascii=False) != f'"{name}"' or not name.isprintable() for name in grades)
        return
    assert json.loads(written) == [{"Host": name, "Score": grade} for name, grade in grades.items()]


@given(grade=st.integers(), better=st.integers())
def test_a_coarse_grade_stays_on_the_scale_and_in_order(grade: int, better: int) -> None:
    """Whatever the fine one is."""
    low, high = sorted((coarse(grade), coarse(better)))
    assert 0 <= low <= high <= 10
    assert (coarse(min(grade, better)), coarse(max(grade, better))) == (low, high)


def test_victims_and_bindings_are_answered_by_go_s_names() -> None:
    """Fewer victims break no more budgets than there are of them."""
    victims = json.loads(encode_victims({"n1": ["a"], "n2": ["b", "c"]}, violations={"n1": 3, "n2": 1}))
    assert victims == {
        "NodeNameToMetaVictims": {
            "n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": 1},
            "n2": {"Pods": [{"UID": "b"}, {"UID": "c"}], "NumPDBViolations": 1},
        }
    }
    assert json.loads(encode_victims({}, violations={})) == {"NodeNameToMetaVictims": {}}
    assert json.loads(encode_bound("taken")) == {"Error": "taken"}
