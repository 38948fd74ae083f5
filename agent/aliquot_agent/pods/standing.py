"""What a pod's slices were when one of its containers last started: this outlives the pod's object and the agent.

It is written beside the slice, in the spec's annotations, so an agent that starts anew knows what those pods hold
whose object was deleted by force while it was away.
"""

from __future__ import annotations

import msgspec

from aliquot_core.claims import Claim
from aliquot_core.quantities import MiB, Percent


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's claims, as they stood."""

    pod: str
    claims: dict[str, Claim]


class _Text(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    compute: int
    memory: int
    closes: bool


_decoder = msgspec.json.Decoder(dict[str, _Text])


def encode_claims(claims: dict[str, Claim]) -> str:
    """Claims as an annotation holds them: `{"GPU-…":[30,8000,false]}`."""
    text = {gpu: _Text(claim.compute.value, claim.memory.value, claim.closes) for gpu, claim in sorted(claims.items())}
    return msgspec.json.encode(text).decode()


def decode_claims(text: str) -> dict[str, Claim] | None:
    """The claims in an annotation; None if it is not ours to read."""
    try:
        found = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return {
        gpu: Claim(compute=Percent(part.compute), memory=MiB(part.memory), closes=part.closes)
        for gpu, part in found.items()
    }
