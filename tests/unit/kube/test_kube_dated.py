"""This machine's clock is held against the dates of the API server's answers."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from aliquot_kube.client import KubeClient
from aliquot_kube.dated import DatedTransport
from aliquot_kube.resources import PODS
from support.clocks import VirtualClock
from support.fake_api import FakeApi

NOW = 1_800_000_000.0
PATH = PODS.path(namespace="team", name="one")


class Read(VirtualClock):
    """A clock that shows these times one after the other."""

    def __init__(self, *times: float) -> None:
        super().__init__()
        self._times = iter(times)

    def wall(self) -> float:
        """The next."""
        return next(self._times)


@pytest.mark.parametrize(
    ("here", "there", "took", "ahead"),
    [
        # What the server's date leaves out, and what the question took, is nobody's fault.
        (NOW + 0.9, NOW, 0.0, 0.0),
        (NOW + 1.0, NOW, 0.0, 0.0),
        (NOW - 3.0, NOW, 5.0, 0.0),
        (NOW + 91.0, NOW, 2.0, 90.0),
        (NOW - 92.0, NOW, 2.0, -90.0),
    ],
)
async def test_it_is_ahead_by_what_nothing_else_explains(here: float, there: float, took: float, ahead: float) -> None:
    """And behind by less than nothing."""
    api, clock = FakeApi(), Read(here, here + took)
    api.put(PATH, {"metadata": {"name": "one", "namespace": "team"}})
    api.headers["Date"] = formatdate(there, usegmt=True)
    compared = DatedTransport(transport=api, clock=clock)
    await KubeClient(transport=compared).get(PODS, name="one", namespace="team")
    assert compared.ahead == ahead


@pytest.mark.parametrize("said", ["", "yesterday"])
async def test_an_answer_without_a_date_tells_nothing(said: str) -> None:
    """What was known stays."""
    api, clock = FakeApi(), VirtualClock(start=NOW)
    api.put(PATH, {"metadata": {"name": "one", "namespace": "team"}})
    client = KubeClient(transport=(compared := DatedTransport(transport=api, clock=clock)))
    api.headers["Date"] = said
    await client.get(PODS, name="one", namespace="team")
    assert compared.ahead is None
    api.headers["Date"] = formatdate(NOW - 11.0, usegmt=True)
    await client.get(PODS, name="one", namespace="team")
    api.headers["Date"] = said
    await client.get(PODS, name="one", namespace="team")
    assert compared.ahead == 10.0
