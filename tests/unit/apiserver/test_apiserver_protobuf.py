"""Bodies in protobuf: what kubectl makes of its flags is read, all else is refused and never half read."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_standalone.apiserver.failures import ApiError
from aliquot_standalone.apiserver.protobuf import read_protobuf
from aliquot_standalone.apiserver.protobuf_fields import KINDS, MESSAGES

BEGINNING = b"k8s\0"


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | str | bytes) -> bytes:
    """A field as protobuf writes it."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(*pairs: tuple[int, int | str | bytes]) -> bytes:
    """A message."""
    return b"".join(field(number, value) for number, value in pairs)


def body(kind: str, content: bytes, version: str = "v1") -> bytes:
    """As clients wrap an object."""
    return BEGINNING + fields((1, fields((1, version), (2, kind))), (2, content), (3, ""), (4, ""))


def metadata(name: str) -> bytes:
    """As clients write it: what is empty is written too, and the time of creation that there is none of."""
    empty: list[tuple[int, int | str | bytes]] = [(2, ""), (3, ""), (4, ""), (5, ""), (6, ""), (7, 0), (8, b"")]
    return fields((1, name), *empty, (11, fields((1, "team"), (2, "a"))))


META = {"name": "x", "labels": {"team": "a"}}


def whole(kind: str, version: str = "v1", **rest: Any) -> dict[str, Any]:
    """An object as JSON has it."""
    return {"apiVersion": version, "kind": kind, "metadata": META, **rest}


HARD = fields((1, "requests.aliquot.dev/memory"), (2, field(1, "64k")))
CONTAINER = fields((1, "main"), (2, "none"), (3, "sleep"), (3, "1"), (5, ""), (8, fields((1, HARD))), (16, 0))
TEMPLATE = fields((1, fields((1, ""))), (2, fields((2, CONTAINER), (3, "Never"), (11, 0))))
READ = {
    "a namespace": (
        body("Namespace", fields((1, metadata("x")), (2, b""), (3, fields((1, ""))))),
        whole("Namespace", spec={}),
    ),
    "a quota": (
        body("ResourceQuota", fields((1, metadata("x")), (2, fields((1, HARD))), (3, b""))),
        whole("ResourceQuota", spec={"hard": {"requests.aliquot.dev/memory": "64k"}}),
    ),
    "a negative number": (
        body("PriorityClass", fields((1, metadata("x")), (2, -5), (3, 0), (4, "")), "scheduling.k8s.io/v1"),
        whole("PriorityClass", "scheduling.k8s.io/v1", value=-5, globalDefault=False),
    ),
    "bytes": (
        body("Secret", fields((1, metadata("x")), (2, fields((1, "key"), (2, b"\xff\0"))), (3, "Opaque"))),
        whole("Secret", data={"key": base64.b64encode(b"\xff\0").decode()}, type="Opaque"),
    ),
    # A pointer to 0 is 0, and not left out: it is the difference between no retry and six.
    "a job": (
        body("Job", fields((1, metadata("x")), (2, fields((6, TEMPLATE), (7, 0)))), "batch/v1"),
        whole(
            "Job",
            "batch/v1",
            spec={
                "template": {
                    "metadata": {},
                    "spec": {
                        "containers": [
                            {
                                "name": "main",
                                "image": "none",
                                "command": ["sleep", "1"],
                                "resources": {"limits": {"requests.aliquot.dev/memory": "64k"}},
                                "stdin": False,
                            }
                        ],
                        "restartPolicy": "Never",
                        "hostNetwork": False,
                    },
                },
                "backoffLimit": 0,
            },
        ),
    ),
}


@pytest.mark.parametrize("case", READ)
def test_what_kubectl_makes_of_its_flags_is_read(case: str) -> None:
    """As the same object in JSON; what stands there empty was not given."""
    sent, expected = READ[case]
    assert read_protobuf(sent) == expected


REFUSED = {
    "another kind": (body("Endpoints", b""), 415, "Endpoints is not taken as protobuf here: send JSON"),
    "no kind": (BEGINNING, 415, "this kind is not taken"),
    "a field that is not known": (body("Namespace", field(9, "?")), 415, "field 9 of Namespace is not taken"),
    "a volume": (body("Pod", field(2, field(1, b"x"))), 415, "field 1 of PodSpec"),
    "another beginning": (b"{}", 400, "does not begin as such"),
    "an end too soon": (body("Namespace", field(1, metadata("x")))[:-9], 400, "it is cut off"),
    "a length too long": (BEGINNING + b"\x0a\xff\xff\x7f", 400, "it is cut off"),
    "a number without end": (BEGINNING + b"\x08" + b"\xff" * 11, 400, "a number is too long"),
    "text for a number": (body("PriorityClass", field(2, "five")), 400, "a number is none"),
    "a number for text": (body("Namespace", field(1, field(1, 7))), 400, "a number stands where text should"),
    "text that is none": (body("Namespace", field(1, field(1, b"\xff"))), 400, "can't decode"),
    "a wire type of old": (BEGINNING + b"\x0b", 400, "no wire type 3"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_read_whole_is_refused(case: str) -> None:
    """With what to do instead where the client is right and we know too little."""
    sent, code, words = REFUSED[case]
    with pytest.raises(ApiError) as caught:
        read_protobuf(sent)
    assert caught.value.code == code
    assert words in str(caught.value)


@given(st.binary(max_size=200), st.sampled_from(sorted(KINDS)), st.booleans())
def test_whatever_comes_is_read_or_refused(data: bytes, kind: str, wrapped: bool) -> None:
    """No other error, whatever the bytes."""
    try:
        code, found = 200, read_protobuf(body(kind, data) if wrapped else BEGINNING + data)
    except ApiError as error:
        code, found = error.code, {}
    assert code in {400, 415} or found["kind"] in KINDS


def test_no_message_holds_one_of_its_own_kind() -> None:
    """Or a body of a few kilobytes could be deeper than Python goes."""

    def depth(kind: str, above: tuple[str, ...] = ()) -> int:
        assert kind not in above
        parts = {one.kind.lstrip("*=") for one in MESSAGES.get(kind, {}).values()}
        return 1 + max((depth(part, (*above, kind)) for part in parts if part in MESSAGES), default=0)

    assert max(map(depth, MESSAGES)) < 10


def test_each_part_of_the_table_is_there() -> None:
    """A kind that no line explains would be found out by the first user who sends it."""
    plain = {"s", "i", "I", "b", "y", "-"}
    kinds = {one.kind.lstrip("*=") for parts in MESSAGES.values() for one in parts.values()}
    assert kinds - plain <= MESSAGES.keys()
    assert MESSAGES.keys() >= KINDS
