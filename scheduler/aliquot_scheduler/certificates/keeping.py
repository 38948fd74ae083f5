"""What the centre keeps of certificates, and when which of it is made anew. Decisions only; chance makes the keys.

Theory of operation. One authority signs two certificates: the replicas' (they serve with it, and call their leader
with it) and kube-scheduler's. Everything is renewed at two thirds of its life. A new authority is trusted by everybody
before it signs anything: it is put first in the bundle of the trusted, the old one stays there until it ends and signs
both certificates once more, and only when these are due, eight months later, the new one signs. kube-scheduler reads
the trusted at its start alone: whenever it is started in these months, for a new version of Kubernetes say, is early
enough. An old authority that can't sign any more gives it a day.

What must always hold:
 1. At every step, what one replica shows by the old state is trusted by whoever has the new one, and the other way
    round, as long as the authority did not end unrenewed.
 2. No certificate outlives its authority.
 3. A state that a person, an accident or a wrong clock spoilt is mended at one look with a right one, and no more of
    it is thrown away than is spoilt. (Who has a wrong clock is kept from writing by `keeper`.)
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from aliquot_scheduler.certificates.issuing import (
    DAY,
    SKEW,
    CertificateError,
    Pair,
    Use,
    belongs,
    issue,
    key_of,
    make_authority,
    read_facts,
    split,
)

# The names in the Secret; those of a TLS Secret, and of cert-manager's, where there are such.
AUTHORITIES, AUTHORITY_KEY = "ca.crt", "ca.key"
SERVER, SERVER_KEY = "tls.crt", "tls.key"
CLIENT, CLIENT_KEY = "client.crt", "client.key"

_AUTHORITY_NAME = "Aliquot"
# How much of its life something is used before it is renewed.
_USED = 2 / 3
# At the least; mounted Secrets follow within minutes, who is away for longer takes the new ones in when it comes back.
SETTLE = DAY


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What certificates there are to be."""

    server: str
    # Names and addresses by which the replicas are called.
    hosts: tuple[str, ...]
    client: str
    authority_life: float = 10 * 365 * DAY
    life: float = 365 * DAY


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, as PEM; the authority that signs is the first of the bundle."""

    authorities: bytes
    authority_key: bytes
    server: Pair
    client: Pair


class Need(StrEnum):
    """What is to be made anew."""

    NOTHING = "nothing"
    CERTIFICATES = "certificates"
    AUTHORITY = "authority"
    ALL = "all"


def from_data(data: Mapping[str, str]) -> Kept | None:
    """What a Secret holds; None where it is not whole."""
    try:
        plain = {name: base64.b64decode(text, validate=True) for name, text in data.items()}
        return Kept(
            authorities=plain[AUTHORITIES],
            authority_key=plain[AUTHORITY_KEY],
            server=Pair(certificate=plain[SERVER], key=plain[SERVER_KEY]),
            client=Pair(certificate=plain[CLIENT], key=plain[CLIENT_KEY]),
        )
    except (KeyError, binascii.Error, ValueError):
        return None


def to_data(kept: Kept) -> dict[str, str]:
    """As a Secret holds it."""
    return {name: base64.b64encode(content).decode() for name, content in files(kept).items()}


def files(kept: Kept) -> dict[str, bytes]:
    """Everything by its name."""
    return {
        AUTHORITIES: kept.authorities,
        AUTHORITY_KEY: kept.authority_key,
        SERVER: kept.server.certificate,
        SERVER_KEY: kept.server.key,
        CLIENT: kept.client.certificate,
        CLIENT_KEY: kept.client.key,
    }


# --- when ------------------------------------------------------------------------------------------------------------
def needed(kept: Kept | None, *, plan: Plan, now: float) -> Need:
    """What is to be made anew now; asked again after each renewal, for one may follow from another."""
    if kept is None:
        return Need.ALL
    authorities = _usable(kept.authorities, now=now)
    if not authorities:
        return Need.ALL
    signer = authorities[0]
    if not _signs(kept, signer) or now >= _due(signer):
        return Need.AUTHORITY
    if not _all_work(kept, authorities, plan=plan, now=now):
        return Need.CERTIFICATES
    return Need.CERTIFICATES if now >= signs_next(kept, now=now) else Need.NOTHING


def signs_next(kept: Kept, *, now: float) -> float:
    """When the authority signs again: once certificates are due, and a new one is known to all."""
    signer, *others = _usable(kept.authorities, now=now)
    settled = read_facts(signer).begins + SKEW.total_seconds() + SETTLE if others else now
    return max(settled, min(_due(pair.certificate) for pair in (kept.server, kept.client)))


def still_good(kept: Kept, *, plan: Plan, now: float) -> bool:
    """Whether one can serve and call with it now, be a renewal due or not."""
    return _all_work(kept, _usable(kept.authorities, now=now), plan=plan, now=now)


def _all_work(kept: Kept, authorities: list[bytes], *, plan: Plan, now: float) -> bool:
    leaves = ((kept.server, plan.server, plan.hosts), (kept.client, plan.client, ()))
    return all(_works(pair, authorities, name=name, hosts=hosts, now=now) for pair, name, hosts in leaves)


def _usable(bundle: bytes, *, now: float) -> list[bytes]:
    """Those of the trusted that have begun and not ended; none if they can't be read.

    What begins later was made by a clock that was ahead, and until then every handshake with it fails.
    """
    try:
        return [one for one in split(bundle) if (facts := read_facts(one)).begins <= now < facts.ends]
    except CertificateError:
        return []


def _signs(kept: Kept, signer: bytes) -> bool:
    """Whether we have the key of this one: it is the first of the trusted, as they stand in the Secret."""
    try:
        return split(kept.authorities)[0] == signer and key_of(signer, kept.authority_key)
    except CertificateError:
        return False


def _works(pair: Pair, authorities: list[bytes], *, name: str, hosts: tuple[str, ...], now: float) -> bool:
    try:
        facts = read_facts(pair.certificate)
        trusted = any(belongs(pair, authority=one) for one in authorities)
    except CertificateError:
        return False
    return trusted and facts.name == name and facts.hosts == set(hosts) and facts.begins <= now < facts.ends


def _due(certificate: bytes) -> float:
    facts = read_facts(certificate)
    return facts.begins + (facts.ends - facts.begins) * _USED


# --- how -------------------------------------------------------------------------------------------------------------
def renewed(kept: Kept | None, need: Need, *, plan: Plan, now: float) -> Kept:
    """The state after this renewal."""
    if need is Need.CERTIFICATES and kept is not None:
        return _with_certificates(kept, plan=plan, now=now)
    authority = make_authority(name=_AUTHORITY_NAME, now=now, life=plan.authority_life)
    if need is Need.AUTHORITY and kept is not None:
        kept = _signed_once_more(kept, plan=plan, now=now)
        old = b"".join(_usable(kept.authorities, now=now))
        bundle = authority.certificate + old
        return msgspec.structs.replace(kept, authorities=bundle, authority_key=authority.key)
    nobody = Pair(certificate=b"", key=b"")
    bare = Kept(authorities=authority.certificate, authority_key=authority.key, server=nobody, client=nobody)
    return _with_certificates(bare, plan=plan, now=now)


def _signed_once_more(kept: Kept, *, plan: Plan, now: float) -> Kept:
    """By the authority that is there, if it can; what has ended meanwhile is not its to mend."""
    can = still_good(kept, plan=plan, now=now) and _signs(kept, _usable(kept.authorities, now=now)[0])
    return _with_certificates(kept, plan=plan, now=now) if can else kept


def _with_certificates(kept: Kept, *, plan: Plan, now: float) -> Kept:
    authorities = _usable(kept.authorities, now=now)
    signer = Pair(certificate=authorities[0], key=kept.authority_key)
    both = (Use.SERVER, Use.CLIENT)
    return Kept(
        authorities=b"".join(authorities),
        authority_key=kept.authority_key,
        server=issue(signer, name=plan.server, hosts=plan.hosts, uses=both, now=now, life=plan.life),
        client=issue(signer, name=plan.client, hosts=(), uses=(Use.CLIENT,), now=now, life=plan.life),
    )
