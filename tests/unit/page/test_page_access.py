"""Who may look: a table of visits."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.page.access import Verdict, Visit, judge

HERE = Visit(
    tls=False,
    replica=False,
    peer="127.0.0.1",
    own="127.0.0.1",
    host="localhost:10944",
    proxied=False,
    site="none",
    mode="navigate",
)


@pytest.mark.parametrize(
    ("visit", "verdict"),
    [
        ({}, Verdict.OPEN),
        ({"peer": "::1", "own": "::1", "host": "[::1]:80"}, Verdict.OPEN),
        ({"peer": "127.3.2.1", "host": "127.0.0.1"}, Verdict.OPEN),
        ({"host": "LOCALHOST."}, Verdict.OPEN),
        ({"host": "lab.example"}, Verdict.OPEN),
        ({"host": "evil.example"}, Verdict.STRANGE_HOST),
        ({"host": "evil.example:10944"}, Verdict.STRANGE_HOST),
        ({"host": "localhost.evil.example"}, Verdict.STRANGE_HOST),
        ({"host": ""}, Verdict.STRANGE_HOST),
        ({"host": "[::1"}, Verdict.STRANGE_HOST),
        ({"peer": "10.0.0.7"}, Verdict.PLAIN),
        ({"own": "10.0.0.7"}, Verdict.PLAIN),
        ({"peer": ""}, Verdict.PLAIN),
        ({"proxied": True}, Verdict.PLAIN),
        ({"tls": True}, Verdict.LOGIN),
        ({"tls": True, "host": "evil.example"}, Verdict.LOGIN),
        ({"tls": True, "peer": "10.0.0.7", "own": "10.0.0.1"}, Verdict.LOGIN),
        ({"site": "cross-site", "mode": "cors"}, Verdict.CROSS_SITE),
        ({"site": "cross-site", "mode": "no-cors", "tls": True}, Verdict.CROSS_SITE),
        ({"site": "cross-site"}, Verdict.OPEN),
        ({"replica": True, "tls": True, "host": "10.0.0.1"}, Verdict.OPEN),
    ],
)
def test_each_visit_is_judged(visit: dict[str, object], verdict: Verdict) -> None:
    """Without login only from this machine to this machine under its own name; over TLS with a token."""
    assert judge(msgspec.structs.replace(HERE, **visit), hosts=["lab.example"]) is verdict


@given(peer=st.ip_addresses(), own=st.ip_addresses())
def test_nobody_from_elsewhere_looks_without_login(peer: object, own: object) -> None:
    """Whatever the addresses: open means that both are this machine's."""
    visit = msgspec.structs.replace(HERE, peer=str(peer), own=str(own))
    both = all(getattr(address, "is_loopback") for address in (peer, own))  # noqa: B009 - of either kind of address
    assert (judge(visit, hosts=[]) is Verdict.OPEN) == both
