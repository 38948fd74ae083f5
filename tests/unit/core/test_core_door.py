"""The door's framing: bytes in, messages out, and nothing but a DoorError for what is not one."""

from __future__ import annotations

import json
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.door import (
    LONGEST_LINE,
    PROTOCOL,
    Device,
    Devices,
    DoorError,
    Forget,
    FromAgent,
    FromEndpoint,
    Hello,
    KubeletSeen,
    Prefer,
    Preference,
    PreStart,
    Refused,
    Started,
    Welcome,
    encode,
    from_agent,
    from_endpoint,
)

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
CALLS = st.integers(0, 2**53)
IDS = st.lists(WORDS, max_size=4)
DEVICES = st.builds(Device, id=WORDS, healthy=st.booleans())
AGENT_SAYS = st.one_of(
    st.builds(Hello, agent=WORDS),
    st.builds(Devices, resources=st.dictionaries(WORDS, st.lists(DEVICES, max_size=3), max_size=3)),
    st.builds(Started, call=CALLS, refused=st.none() | WORDS),
    st.builds(Preference, call=CALLS, ids=IDS),
)
ENDPOINT_SAYS = st.one_of(
    st.builds(Welcome, endpoint=WORDS),
    st.builds(Refused, reason=WORDS),
    st.builds(KubeletSeen, listening=IDS, registrations=CALLS),
    st.builds(PreStart, call=CALLS, resource=WORDS, ids=IDS, names=IDS, patience=st.floats(0, 60)),
    st.builds(Prefer, call=CALLS, resource=WORDS, available=IDS, must_include=IDS, size=st.integers(0, 800)),
    st.builds(Forget, call=CALLS),
)


@given(AGENT_SAYS)
def test_every_message_is_one_line(message: FromAgent) -> None:
    """Whatever is in it, newlines too: the line's end is the message's end."""
    assert encode(message).count(b"\n") == 1
    assert encode(message).endswith(b"\n")


@given(st.lists(AGENT_SAYS, max_size=5))
def test_the_endpoint_reads_byte_by_byte_what_the_agent_said(messages: list[FromAgent]) -> None:
    """A stream owes nobody whole messages."""
    lines = from_agent()
    stream = b"".join(encode(message) for message in messages)
    assert [read for byte in stream for read in lines.feed(bytes([byte]))] == messages


@given(st.lists(ENDPOINT_SAYS, max_size=5), st.data())
def test_the_agent_reads_what_the_endpoint_said_however_it_is_cut(
    messages: list[FromEndpoint], data: st.DataObject
) -> None:
    """Several at once, halves, nothing at all: the same messages in the same order."""
    stream = b"".join(encode(message) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    lines = from_endpoint()
    parts = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [read for part in parts for read in lines.feed(part)] == messages


def test_every_message_has_a_row_above() -> None:
    """A new kind of message is not forgotten here."""
    assert {kind.__name__ for kind in get_args(FromAgent)} == {"Hello", "Devices", "Started", "Preference"}
    assert {kind.__name__ for kind in get_args(FromEndpoint)} == {
        *("Welcome", "Refused", "KubeletSeen", "PreStart", "Prefer", "Forget")
    }


GARBAGE = {
    "an empty line": b"\n",
    "not JSON": b"hello\n",
    "a number": b"1\n",
    "a list": b"[]\n",
    "half a message": b'{"say":"hello"\n',
    "no kind": b'{"agent":"x"}\n',
    "an unknown kind": b'{"say":"dance"}\n',
    "a kind of the other side": encode(Welcome(endpoint="x")),
    "an entry missing": b'{"say":"hello"}\n',
    "an entry of another type": b'{"say":"started","call":"1"}\n',
    "an unknown entry": b'{"say":"started","call":1,"more":2}\n',
    "an unknown entry of a device": b'{"say":"devices","resources":{"r":[{"id":"0-1","x":1}]}}\n',
    "not UTF-8": b'{"say":"hello","agent":"\xff"}\n',
    "UTF-16": json.dumps({"say": "hello", "agent": "x"}).encode("utf-16") + b"\n",
    "zeros": b"\x00" * 10 + b"\n",
    "deep lists": b"[" * 60_000 + b"\n",
    "deep objects": b'{"x":' * 60_000 + b"\n",
    "a deep kind": b'{"x":' + b"[" * 60_000 + b"\n",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("row", GARBAGE)
def test_what_is_no_message_is_a_door_error(row: str) -> None:
    """It names the line, shortly, and its class says that one of us broke a rule."""
    with pytest.raises(DoorError, match="agent's door: not understood") as caught:
        list(from_agent().feed(GARBAGE[row]))
    assert len(str(caught.value)) < 1_500
    assert caught.value.fault == "aliquot"


def test_messages_before_the_garbage_are_heard() -> None:
    """The peer is disconnected at the line that it broke, not before."""
    heard = from_agent().feed(
        encode(Started(call=1)) + encode(Started(call=2)) + b"garbage\n" + encode(Hello(agent="x"))
    )
    assert [next(heard), next(heard)] == [Started(call=1), Started(call=2)]
    with pytest.raises(DoorError):
        next(heard)


@pytest.mark.parametrize("end", [b"", b"\n"], ids=["without an end", "with its end"])
def test_a_message_without_measure_is_refused(end: bytes) -> None:
    """Nobody's memory is filled through the door, whether or not the end came along."""
    with pytest.raises(DoorError, match="a message of more than 4194304 bytes"):
        list(from_agent().feed(b"x" * (LONGEST_LINE + 1) + end))


def test_a_message_without_measure_is_refused_in_parts() -> None:
    """At the part that is one too many, not at the end that never comes."""
    lines = from_agent()
    for _ in range(4):
        assert list(lines.feed(b"x" * (LONGEST_LINE // 4))) == []
    with pytest.raises(DoorError, match="more than"):
        list(lines.feed(b"x"))


def test_the_longest_message_passes() -> None:
    """The limit itself is allowed, and room is for far more devices than a machine has."""
    frame = len(encode(Hello(agent=""))) - 1
    longest = Hello(agent="x" * (LONGEST_LINE - frame))
    assert list(from_agent().feed(encode(longest))) == [longest]
    devices = Devices(resources={"aliquot.dev/compute": [Device(id=f"{n // 100}-{n % 100}") for n in range(2_112)]})
    assert len(encode(devices)) < LONGEST_LINE / 20


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"say":"hello","agent":"x","protocol":2,"speaks":[2,3]}\n', Hello(agent="x", protocol=2)),
        (b'{"say":"hello","agent":"x","protocol":1}\n', Hello(agent="x", protocol=PROTOCOL)),
    ],
)
def test_a_hello_of_another_protocol_can_be_read(line: bytes, message: Hello) -> None:
    """So that it is refused by its number, not cut off as garbage: the endpoint outlives many agents."""
    assert list(from_agent().feed(line)) == [message]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"say":"welcome","endpoint":"x","protocol":2,"more":1}\n', Welcome(endpoint="x", protocol=2)),
        (b'{"say":"refused","reason":"x","more":1}\n', Refused(reason="x")),
    ],
)
def test_the_answer_of_another_protocol_can_be_read(line: bytes, message: FromEndpoint) -> None:
    """An agent learns why it is not taken."""
    assert list(from_endpoint().feed(line)) == [message]


def test_the_protocol_is_always_said() -> None:
    """Left out it would be read as whatever the reader speaks."""
    assert msgspec.json.decode(encode(Hello(agent="x")))["protocol"] == PROTOCOL
    assert msgspec.json.decode(encode(Welcome(endpoint="x")))["protocol"] == PROTOCOL


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_messages_or_a_door_error(data: bytes) -> None:
    """Whoever connects, the process lives on."""
    try:
        heard = list(from_agent().feed(data))
    except DoorError:
        return
    assert len(heard) == data.count(b"\n")
