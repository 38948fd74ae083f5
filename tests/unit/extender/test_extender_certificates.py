"""Certificates of the centre's own: made, renewed in time, mended, and trusted at every step of it."""

from __future__ import annotations

import contextlib
import ssl
import time
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.names import Names
from aliquot_scheduler.certificates.issuing import (
    DAY,
    SKEW,
    CertificateError,
    Pair,
    Use,
    belongs,
    issue,
    make_authority,
    read_facts,
    split,
)
from aliquot_scheduler.certificates.keeping import (
    SETTLE,
    Kept,
    Need,
    Plan,
    files,
    from_data,
    needed,
    renewed,
    signs_next,
    to_data,
)
from aliquot_scheduler.certificates.settings import CertificateSettings
from aliquot_scheduler.web.settings import WebSettings

NOW = 1_800_000_000.0
PLAN = Plan(server="centre", hosts=("centre", "centre.system.svc", "127.0.0.1"), client="system:kube-scheduler")
FRESH = renewed(None, Need.ALL, plan=PLAN, now=NOW)
NOBODY = Pair(certificate=b"", key=b"")


def after(kept: Kept | None, *, now: float, plan: Plan = PLAN) -> tuple[Kept, list[Need]]:
    """The state once nothing is needed any more, and what was."""
    needs: list[Need] = []
    while (need := needed(kept, plan=plan, now=now)) is not Need.NOTHING:
        needs.append(need)
        kept = renewed(kept, need, plan=plan, now=now)
        assert len(needs) < 4
    assert kept is not None
    return kept, needs


def trusts(kept: Kept, pair: Pair, *, now: float) -> bool:
    """Whether whoever has one state takes a certificate of another."""
    facts = read_facts(pair.certificate)
    return facts.begins <= now < facts.ends and any(
        belongs(pair, authority=one) and now < read_facts(one).ends for one in split(kept.authorities)
    )


# --- making ----------------------------------------------------------------------------------------------------------
def test_what_is_made_at_first_is_whole() -> None:
    """An authority, a certificate for both ends of the replicas' calls, and one for kube-scheduler."""
    assert needed(FRESH, plan=PLAN, now=NOW) is Need.NOTHING
    assert len(split(FRESH.authorities)) == 1
    server, client = read_facts(FRESH.server.certificate), read_facts(FRESH.client.certificate)
    assert (server.name, server.hosts) == ("centre", frozenset(PLAN.hosts))
    assert (client.name, client.hosts) == ("system:kube-scheduler", frozenset())
    assert trusts(FRESH, FRESH.server, now=NOW)
    assert trusts(FRESH, FRESH.client, now=NOW)
    uses = {
        name: set(
            x509.load_pem_x509_certificate(pair.certificate)
            .extensions.get_extension_for_class(x509.ExtendedKeyUsage)
            .value
        )
        for name, pair in (("server", FRESH.server), ("client", FRESH.client))
    }
    assert uses == {"server": {Use.SERVER.value, Use.CLIENT.value}, "client": {Use.CLIENT.value}}


def test_openssl_takes_them_at_its_strictest(tmp_path: Path) -> None:
    """Both ways, as Python 3.13 looks at them by default."""
    fresh = renewed(None, Need.ALL, plan=PLAN, now=time.time())
    contexts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context, pair in zip(contexts, (fresh.server, fresh.client), strict=True):
        place = tmp_path / "pair.pem"
        place.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(place)
        context.load_verify_locations(cadata=fresh.authorities.decode())
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.verify_mode = ssl.CERT_REQUIRED
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = contexts[0].wrap_bio(to_server, to_client, server_side=True)
    client = contexts[1].wrap_bio(to_client, to_server, server_hostname="centre.system.svc")
    for one in (client, server) * 3:
        with contextlib.suppress(ssl.SSLWantReadError):
            one.do_handshake()
    # A client of TLS 1.3 learns only by reading that it is not let in.
    server.write(b"welcome")
    assert client.read() == b"welcome"
    assert server.getpeercert()


def test_no_certificate_outlives_its_authority() -> None:
    """Its end is the authority's, if that is nearer."""
    authority = make_authority(name="a", now=NOW, life=DAY)
    pair = issue(authority, name="x", hosts=(), uses=(Use.CLIENT,), now=NOW + DAY / 2, life=10 * DAY)
    assert read_facts(pair.certificate).ends == read_facts(authority.certificate).ends == NOW + DAY


def test_each_certificate_has_its_own_key_and_number() -> None:
    """Whoever loses one has not lost the others."""
    keys = {
        FRESH.authority_key,
        FRESH.server.key,
        FRESH.client.key,
        renewed(None, Need.ALL, plan=PLAN, now=NOW).server.key,
    }
    assert len(keys) == 4


@pytest.mark.parametrize("data", [b"", b"x", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_said_to_be_none(data: bytes) -> None:
    """By an error of ours."""
    with pytest.raises(CertificateError):
        read_facts(data)
    with pytest.raises(CertificateError):
        split(data)


# --- the Secret ------------------------------------------------------------------------------------------------------
def test_a_secret_gives_back_what_was_put_in() -> None:
    """Under the names that mounts and cert-manager know."""
    assert from_data(to_data(FRESH)) == FRESH
    assert set(files(FRESH)) == {"ca.crt", "ca.key", "tls.crt", "tls.key", "client.crt", "client.key"}


@pytest.mark.parametrize("name", sorted(files(FRESH)))
@pytest.mark.parametrize("spoilt", [None, "%", "A"])
def test_a_secret_that_is_not_whole_holds_nothing(name: str, spoilt: str | None) -> None:
    """Something is left out, or is no base64."""
    data = {key: text for key, text in to_data(FRESH).items() if key != name}
    assert from_data(data if spoilt is None else {**data, name: spoilt}) is None
    assert from_data({}) is None


# --- when ------------------------------------------------------------------------------------------------------------
def test_certificates_are_renewed_at_two_thirds_of_their_life() -> None:
    """Not before, and the authority stays."""
    ends = read_facts(FRESH.server.certificate)
    due = ends.begins + (ends.ends - ends.begins) * 2 / 3
    assert needed(FRESH, plan=PLAN, now=due - 1) is Need.NOTHING
    kept, needs = after(FRESH, now=due + 1)
    assert needs == [Need.CERTIFICATES]
    assert kept.authorities == FRESH.authorities
    assert read_facts(kept.server.certificate).ends == pytest.approx(due + 1 + PLAN.life, abs=1)
    assert trusts(FRESH, kept.server, now=due + 1)


@pytest.mark.parametrize("age", [0.01, 0.66, 0.8])
def test_a_new_authority_is_trusted_for_months_before_it_signs(age: float) -> None:
    """However old the certificates are: the old one signs them once more, and stays in the bundle until it ends.

    Who reads the trusted only at its start, kube-scheduler, needs to be started once meanwhile, and not at a given day.
    """
    due = NOW + PLAN.authority_life * 0.7
    kept = renewed(FRESH, Need.CERTIFICATES, plan=PLAN, now=due - PLAN.life * age)
    first, needs = after(kept, now=due)
    assert needs == [Need.AUTHORITY]
    assert trusts(kept, first.server, now=due)
    assert trusts(kept, first.client, now=due)
    assert split(first.authorities)[1:] == split(FRESH.authorities)
    later = due + PLAN.life * 2 / 3
    assert signs_next(first, now=due) == pytest.approx(later, abs=SKEW.total_seconds())
    assert needed(first, plan=PLAN, now=later - 2 * SKEW.total_seconds()) is Need.NOTHING
    second, needs = after(first, now=later)
    assert needs == [Need.CERTIFICATES]
    assert not trusts(kept, second.server, now=later)
    assert trusts(first, second.server, now=later)
    assert trusts(second, first.server, now=later)
    last, _ = after(second, now=NOW + PLAN.authority_life + 1)
    assert len(split(last.authorities)) == 1


def test_certificates_that_are_due_wait_until_a_new_authority_is_known() -> None:
    """After a long absence both are due at once, and the old authority's key is lost: it signs no more."""
    due = NOW + PLAN.authority_life * 0.7
    old = renewed(FRESH, Need.CERTIFICATES, plan=PLAN, now=due - PLAN.life * 0.8)
    first, needs = after(msgspec.structs.replace(old, authority_key=b"x"), now=due)
    assert needs == [Need.AUTHORITY]
    assert needed(first, plan=PLAN, now=due + SETTLE - 1) is Need.NOTHING
    assert needed(first, plan=PLAN, now=due + SETTLE + 1) is Need.CERTIFICATES


def test_certificates_of_a_short_life_do_not_wait_for_an_authority_that_is_the_only_one() -> None:
    """Nobody could have another."""
    plan = msgspec.structs.replace(PLAN, life=DAY)
    kept, _ = after(None, now=NOW, plan=plan)
    assert needed(kept, plan=plan, now=NOW + DAY * 0.7) is Need.CERTIFICATES


def test_what_has_ended_is_replaced_at_once() -> None:
    """There is nobody to wait for."""
    kept, needs = after(FRESH, now=NOW + PLAN.life + 1)
    assert needs == [Need.CERTIFICATES]
    assert trusts(FRESH, kept.client, now=NOW + PLAN.life + 1)
    _, needs = after(FRESH, now=NOW + PLAN.authority_life + 1)
    assert needs == [Need.ALL]
    _, needs = after(FRESH, now=NOW + PLAN.authority_life - 1)
    assert needs == [Need.AUTHORITY, Need.CERTIFICATES]


def test_another_name_or_host_needs_another_certificate() -> None:
    """A setting was changed."""
    for plan in (
        msgspec.structs.replace(PLAN, hosts=("centre",)),
        msgspec.structs.replace(PLAN, hosts=(*PLAN.hosts, "10.0.0.1")),
        msgspec.structs.replace(PLAN, server="other"),
        msgspec.structs.replace(PLAN, client="other"),
    ):
        assert needed(FRESH, plan=plan, now=NOW) is Need.CERTIFICATES
        kept = renewed(FRESH, Need.CERTIFICATES, plan=plan, now=NOW)
        assert needed(kept, plan=plan, now=NOW) is Need.NOTHING


OTHER = renewed(None, Need.ALL, plan=PLAN, now=NOW)
SPOILT = {
    "no server's certificate": (msgspec.structs.replace(FRESH, server=NOBODY), [Need.CERTIFICATES]),
    "no client's certificate": (msgspec.structs.replace(FRESH, client=NOBODY), [Need.CERTIFICATES]),
    "of another authority": (msgspec.structs.replace(FRESH, server=OTHER.server), [Need.CERTIFICATES]),
    "another's key": (
        msgspec.structs.replace(FRESH, server=Pair(certificate=FRESH.server.certificate, key=FRESH.client.key)),
        [Need.CERTIFICATES],
    ),
    "each other's": (msgspec.structs.replace(FRESH, server=FRESH.client, client=FRESH.server), [Need.CERTIFICATES]),
    "another authority's key": (msgspec.structs.replace(FRESH, authority_key=OTHER.authority_key), [Need.AUTHORITY]),
    "no authority's key": (msgspec.structs.replace(FRESH, authority_key=b"x"), [Need.AUTHORITY]),
    "no authority": (msgspec.structs.replace(FRESH, authorities=b""), [Need.ALL]),
    "half an authority": (msgspec.structs.replace(FRESH, authorities=FRESH.authorities[:200]), [Need.ALL]),
    "another authority": (
        msgspec.structs.replace(FRESH, authorities=OTHER.authorities),
        [Need.AUTHORITY, Need.CERTIFICATES],
    ),
}


@pytest.mark.parametrize("how", SPOILT)
def test_what_is_spoilt_is_mended_and_no_more(how: str) -> None:
    """And what others still trust is still trusted, wherever there is a choice."""
    spoilt, expected = SPOILT[how]
    kept, needs = after(spoilt, now=NOW)
    assert needs == expected
    if Need.ALL not in needs:
        assert set(split(spoilt.authorities)) <= set(split(kept.authorities))
    assert trusts(kept, kept.server, now=NOW)


@settings(max_examples=25)
@given(steps=st.lists(st.floats(min_value=0.01, max_value=0.3), min_size=1, max_size=12))
def test_at_every_step_old_and_new_state_trust_each_other(steps: list[float]) -> None:
    """Whenever the centre looks, if it looks as often as a third of a certificate's life is long."""
    plan = msgspec.structs.replace(PLAN, life=300 * DAY, authority_life=900 * DAY)
    now, states = NOW, [renewed(None, Need.ALL, plan=plan, now=NOW)]
    for step in steps:
        now += step * plan.life
        before = states[-1]
        while (need := needed(states[-1], plan=plan, now=now)) is not Need.NOTHING:
            assert need is not Need.ALL
            states.append(renewed(states[-1], need, plan=plan, now=now))
        for old, new in pairwise([before, *states[states.index(before) + 1 :]]):
            for one, other in ((old, new), (new, old)):
                assert trusts(one, other.server, now=now)
                assert trusts(one, other.client, now=now)
        assert len(split(states[-1].authorities)) <= 3


# --- clocks that are wrong -------------------------------------------------------------------------------------------
YEAR = 365 * DAY


@pytest.mark.parametrize("ahead", [0.01, 0.7, 2, 7, 9.99, 11, 40, -0.01, -1, -20])
def test_what_a_clock_years_off_has_made_is_mended_by_a_right_one(ahead: float) -> None:
    """At one look; who has only what there was before trusts what is shown then, if that authority is in time."""
    spoilt, _ = after(FRESH, now=NOW + ahead * YEAR)
    kept, _ = after(spoilt, now=NOW + 60)
    assert is_in_time(kept, now=NOW + 60)
    assert needed(kept, plan=PLAN, now=NOW + 60) is Need.NOTHING


def test_an_authority_that_has_not_begun_is_followed_by_one_that_has() -> None:
    """What the one before it has signed is thrown away only where it is not in time."""
    future = renewed(FRESH, Need.AUTHORITY, plan=PLAN, now=NOW + 7 * YEAR)
    kept, needs = after(future, now=NOW)
    assert needs == [Need.AUTHORITY]
    assert split(kept.authorities)[1:] == split(FRESH.authorities)
    assert (kept.server, kept.client) == (FRESH.server, FRESH.client)


def is_in_time(kept: Kept, *, now: float) -> bool:
    """Whether TLS takes all of it: whatever is shown or trusted has begun and not ended."""
    every = [*split(kept.authorities), kept.server.certificate, kept.client.certificate]
    facts = [read_facts(one) for one in every]
    whole = trusts(kept, kept.server, now=now) and trusts(kept, kept.client, now=now)
    return whole and all(one.begins <= now < one.ends for one in facts)


@settings(max_examples=25)
@given(
    steps=st.lists(
        st.tuples(st.floats(min_value=0.01, max_value=0.3), st.sampled_from([0, 0, 0, -3, -0.1, 0.1, 0.7, 2, 4])),
        min_size=1,
        max_size=8,
    )
)
def test_with_right_clocks_again_all_is_mended_at_the_next_look(steps: list[tuple[float, float]]) -> None:
    """However many looks, by clocks however wrong, have written before."""
    plan = msgspec.structs.replace(PLAN, life=300 * DAY, authority_life=900 * DAY)
    now, kept = NOW, renewed(None, Need.ALL, plan=plan, now=NOW)
    for step, ahead in steps:
        now += step * plan.life
        kept, _ = after(kept, now=now + ahead * YEAR, plan=plan)
        mended, _ = after(kept, now=now, plan=plan)
        assert is_in_time(mended, now=now)
        assert needed(mended, plan=plan, now=now) is Need.NOTHING


def test_replicas_are_called_by_their_service_and_by_what_is_set() -> None:
    """Whatever the namespace is called; a host that is named twice is in the certificate once."""
    chosen = CertificateSettings(service="gpus", hosts=("10.0.0.7", "gpus"))
    plan = chosen.plan(Names(namespace="mine"))
    assert plan.hosts == ("aliquot-centre", "gpus", "gpus.mine", "gpus.mine.svc", "10.0.0.7")
    kept, _ = after(None, now=NOW, plan=plan)
    assert read_facts(kept.server.certificate).hosts == set(plan.hosts)
    assert read_facts(kept.client.certificate).name in WebSettings().allowed_clients
    assert read_facts(kept.server.certificate).name in WebSettings().allowed_clients
