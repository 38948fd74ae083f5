"""The narrow door between the endpoint, which the kubelet sees, and the agent behind it.

The endpoint is hardly ever replaced; the agent may crash or be upgraded at any instant. So the endpoint listens on a
unix socket, the agent connects, and all they say to each other is below: one JSON object a line. Framing is pure:
bytes in, messages out. A peer that breaks the protocol is told so by a `DoorError` and disconnected.

    agent    → endpoint   Hello, then Devices whenever they change, an answer to every call
    endpoint → agent      Welcome or Refused, then the calls the kubelet makes (and Forget where it gave one up),
                          KubeletSeen when that changes

A call that was not answered when the agent went away is asked again of its successor: the agent's answers are
idempotent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from aliquot_core.errors import DefectError

PROTOCOL = 1
# A PreStart of eight whole GPUs names 800 ids, a full Devices table of 16 GPUs some 2,100: far below this.
LONGEST_LINE = 4 * 1024 * 1024


class DoorError(DefectError):
    """The other side of the door said something that can't be understood."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="say"):
    """Common settings of all messages."""


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device id as the kubelet is told of it.

    What stands before the id's last dash names its GPU (`3-41` is one of GPU 3's), so that the endpoint can keep a
    container on few GPUs when it must choose alone.
    """

    id: str
    healthy: bool = True


class Hello(_Message, frozen=True, kw_only=True, tag="hello", forbid_unknown_fields=False):
    """The agent introduces itself. Unknown fields pass: another protocol's Hello is to be refused, not misread."""

    agent: str
    protocol: int = PROTOCOL


class Devices(_Message, frozen=True, kw_only=True, tag="devices"):
    """All device ids of all resources; what is left out is gone."""

    resources: dict[str, list[Device]]


class Started(_Message, frozen=True, kw_only=True, tag="started"):
    """Answer to `PreStart`: the container may start, or `refused` says why not."""

    call: int
    refused: str | None = None


class Preference(_Message, frozen=True, kw_only=True, tag="preference"):
    """Answer to `Prefer`; empty when the agent can't tell."""

    call: int
    ids: list[str] = []


class Welcome(_Message, frozen=True, kw_only=True, tag="welcome", forbid_unknown_fields=False):
    """The endpoint takes this agent."""

    endpoint: str
    protocol: int = PROTOCOL


class Refused(_Message, frozen=True, kw_only=True, tag="refused", forbid_unknown_fields=False):
    """The endpoint does not take this agent: another one is connected, or it speaks another protocol."""

    reason: str


class KubeletSeen(_Message, frozen=True, kw_only=True, tag="kubelet"):
    """Which resources the kubelet listens to at this moment, and how often we registered so far."""

    listening: list[str]
    registrations: int


class PreStart(_Message, frozen=True, kw_only=True, tag="prestart"):
    """The kubelet is about to create a container that holds these ids.

    `names` are the CDI names that the endpoint remembers to have answered for these ids, newest last; what counts is
    the kubelet's own record, this is for when that can't be read. The endpoint waits `patience` seconds for the answer;
    a refusal that says what is awaited is worth more to people than the endpoint's own "no answer".
    """

    call: int
    resource: str
    ids: list[str]
    names: list[str] = []
    patience: float = 0.0


class Prefer(_Message, frozen=True, kw_only=True, tag="prefer"):
    """The kubelet asks which of the available ids it should take."""

    call: int
    resource: str
    available: list[str]
    must_include: list[str]
    size: int


class Forget(_Message, frozen=True, kw_only=True, tag="forget"):
    """Nobody waits any more for the answer to this call."""

    call: int


FromAgent = Hello | Devices | Started | Preference
FromEndpoint = Welcome | Refused | KubeletSeen | PreStart | Prefer | Forget

M = TypeVar("M")


class Lines(Generic[M]):
    """Bytes in, messages out: cuts a stream into lines and decodes each."""

    def __init__(self, decoder: msgspec.json.Decoder[M]) -> None:
        self._decoder = decoder
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[M]:
        """Yield each message that these bytes complete."""
        self._rest += data
        while (end := self._rest.find(b"\n")) >= 0:
            _check_length(end)
            line = bytes(self._rest[:end])
            del self._rest[: end + 1]
            yield self._decode(line)
        _check_length(len(self._rest))

    def _decode(self, line: bytes) -> M:
        try:
            return self._decoder.decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: text that is not UTF-8
            raise DoorError(f"not understood: {line[:200]!r} ({error})", where="agent's door") from error


def _check_length(length: int) -> None:
    if length > LONGEST_LINE:
        raise DoorError(f"a message of more than {LONGEST_LINE} bytes", where="agent's door")


def from_agent() -> Lines[FromAgent]:
    """What the endpoint reads with."""
    return Lines(msgspec.json.Decoder(FromAgent))


def from_endpoint() -> Lines[FromEndpoint]:
    """What the agent reads with."""
    return Lines(msgspec.json.Decoder(FromEndpoint))


def encode(message: FromAgent | FromEndpoint) -> bytes:
    """One message as it travels."""
    return msgspec.json.encode(message) + b"\n"
