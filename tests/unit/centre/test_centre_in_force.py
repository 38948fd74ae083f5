"""The leader's settings, told to those who explain its decisions."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.names import PACE_LEASE, Names
from aliquot_core.objects import Lease, ObjectMeta
from aliquot_scheduler.in_force import InForce, encode_in_force, read_in_force, told_in_force
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.rules.expressions import Expression, RuleSettings

NAMES = Names()
OWN = InForce(
    queues=QueueSettings(half_life=7.0), rules=RuleSettings(expressions=(Expression(name="mine", cost="1.0"),))
)


def told(text: str, *, name: str = PACE_LEASE) -> list[Lease]:
    """A lease of the leader's that says so, among others."""
    said = Lease(metadata=ObjectMeta(name=name, annotations={NAMES.settings: text}))
    return [Lease(metadata=ObjectMeta(name="node-1", annotations={})), said]


def read(leases: list[Lease]) -> InForce:
    """As somebody with settings of their own reads it."""
    return read_in_force(leases, names=NAMES, own=OWN)


@given(
    queues=st.builds(
        QueueSettings,
        patience=st.floats(min_value=0, max_value=1000),
        half_life=st.floats(min_value=1, max_value=1000),
        user_label=st.sampled_from(["", "team/user"]),
    ),
    cost=st.sampled_from(["", "0.5"]),
)
def test_what_is_told_is_read(queues: QueueSettings, cost: str) -> None:
    """And counts before the reader's own."""
    rules = RuleSettings(expressions=(Expression(name="kept", refuse="node.name == 'n'", cost=cost, why="kept"),))
    leader = InForce(queues=queues, rules=rules)
    assert read(told(encode_in_force(leader))) == leader


@given(text=st.text(max_size=40) | st.sampled_from(["{}", "[]", "null", '{"queues":3}', '{"queues":{"half_life":-1}}']))
def test_whatever_stands_there_gives_settings(text: str) -> None:
    """Of a section that is left out the reader has its own, or what comes with this version."""
    found = read(told(text))
    assert found in (OWN, msgspec.structs.replace(OWN, queues=QueueSettings()))


@pytest.mark.parametrize(
    "text",
    [
        '{"queues":{"half_life":5.0},"fairness":{}}',
        '{"queues":{"half_life":5.0},"rules":{"expressions":[{"name":"new","cost":"node.age"}]}}',
        '{"queues":{"half_life":5.0},"rules":{"expressions":[{"name":"new","cost":"1 +"}]}}',
        "[" * 100_000,
    ],
    ids=["section", "fact", "expression", "deep"],
)
def test_what_is_not_understood_changes_nothing(text: str) -> None:
    """A leader of another version may know more than this one: no half of it counts."""
    assert read(told(text)) == OWN


def test_nobody_but_the_leader_is_heard() -> None:
    """A heart-beat says nothing of settings, and where no leader has told them the reader's own count."""
    text = encode_in_force(InForce(queues=QueueSettings(half_life=5.0)))
    assert read(told(text, name="node-2")) == OWN
    assert read([]) == OWN


def test_rules_that_are_too_long_are_left_out() -> None:
    """An object takes no more than 256 KiB of annotations: queues are told all the same."""
    long = Expression(name="long", refuse="false || " * 1000 + "false")
    many = tuple(msgspec.structs.replace(long, name=f"r{number}") for number in range(10))
    queues = QueueSettings(half_life=5.0)
    text = encode_in_force(InForce(queues=queues, rules=RuleSettings(expressions=many)))
    assert len(text) < 1000
    assert read(told(text)) == msgspec.structs.replace(OWN, queues=queues)


def test_whether_the_leader_has_told_is_known() -> None:
    """What is not understood is not told; what is equal to one's own is."""
    assert told_in_force(told(encode_in_force(OWN)), names=NAMES) == OWN
    assert told_in_force(told("[]"), names=NAMES) is None
    assert told_in_force([], names=NAMES) is None
