"""Whom a replica of the centre takes for another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from aliquot_cli.replica_answers import replicas
from aliquot_scheduler.certificates.settings import CENTRE
from support.clocks import VirtualClock

# As Python tells of a certificate that it has verified.
UNTIL = "Jan  1 00:00:00 2040 GMT"


def signed(name: str) -> dict[str, Any]:
    """A certificate for this name."""
    return {"subject": ((("commonName", name),),), "subjectAltName": (("DNS", name),), "notAfter": UNTIL}


@pytest.mark.parametrize(
    ("certificate", "known"), [(signed(CENTRE), True), (signed("system:kube-scheduler"), False), (None, False)]
)
def test_a_replica_is_known_by_the_certificate_that_it_serves_with(
    certificate: dict[str, Any] | None, *, known: bool
) -> None:
    """Whoever may call the extender is none yet, nor who shows nothing."""
    request = SimpleNamespace(transport=SimpleNamespace(get_extra_info={"peercert": certificate}.get))
    assert replicas(clock=VirtualClock())(cast("web.Request", request)) is known
