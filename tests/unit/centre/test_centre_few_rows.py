"""Few nodes that are asked say what they say among all, and what is known of them is not worked out for each pod."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from aliquot_core.claims import Claim
from aliquot_core.quantities import MiB, Percent
from aliquot_core.request import parse_request
from aliquot_scheduler.fit.causes import Causes
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.emptied import Emptied
from aliquot_scheduler.fit.plain_rows import PlainRows
from aliquot_scheduler.picture.picture import Picture
from support.centre import NAMES, asks, container, gpus, make_node, make_pod, picture_with

PODS = {
    "too large for all": asks("p", 60, 90_000),
    "no room": asks("p", 60, None),
    "two GPUs": asks("p", 200, None),
    "of one model": asks("p", 60, None, annotations={NAMES.gpu_model: "*T4*"}),
    "by uuid": asks("p", 60, None, annotations={NAMES.gpu_uuid: "GPU-n3-0"}),
    "several containers": make_pod("p", container("a", (60, 20_000)), container("b", (60, 20_000))),
}


def town() -> Picture:
    """Sixty nodes of two GPUs, in five states; three of four are of another model."""
    names = [f"n{number}" for number in range(60)]
    models = ["Tesla T4" if number % 4 else "NVIDIA A100-SXM4-80GB" for number in range(60)]
    nodes = zip(names, models, strict=True)
    picture = picture_with(*(make_node(name, gpus(name, 2, model=model)) for name, model in nodes))
    for number, name in enumerate(names):
        for card in range(2):
            share = 50 + 10 * ((number + card) % 5)
            claim = Claim(compute=Percent(share), memory=MiB(100 * share), closes=False)
            picture.hold(f"{name}-{card}", {(name, f"GPU-{name}-{card}"): claim})
    return picture


@pytest.mark.parametrize("what", PODS)
def test_a_cause_is_the_same_whoever_is_asked_beside(what: str) -> None:
    """One node after the other, and all of them at once."""
    picture, demand = town(), demand_of(parse_request(PODS[what], names=NAMES))
    rows = [known.row for known in picture.nodes.values()]

    def causes() -> Causes:
        named = picture.named(demand.request.uuids)
        return Causes(demand, grid=picture.grid, emptied=Emptied(), named=named)

    together = [repr(one) for one in causes().of(rows)]
    assert [repr(causes().of([row])[0]) for row in rows] == together


def test_a_row_is_made_plain_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it changes; what was handed out stays as it was."""
    picture = town()
    plain = Mock(wraps=picture.grid.plain)
    monkeypatch.setattr(picture.grid, "plain", plain)
    rows, row = PlainRows(grid=picture.grid), picture.nodes["n3"].row
    before = rows.of(row)
    assert rows.of(row) is before
    assert plain.call_count == 1
    assert before.free[:2] == [(20, 90), (10, 88)]
    picture.hold("n3-0", {})
    assert rows.of(row).free[:2] == [(100, 100), (10, 88)]
    assert before.free[:2] == [(20, 90), (10, 88)]
    assert plain.call_count == 2
