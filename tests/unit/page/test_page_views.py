"""The difference of two views is all that a reader needs to come from the one to the other."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.inventory import Health
from aliquot_scheduler.page.bars import gpu_bar
from aliquot_scheduler.page.html import Html
from aliquot_scheduler.page.model import GpuShown
from aliquot_scheduler.page.views import Region, View, change, keyed, row

KEYS = st.sampled_from("abcdef")
CHILDREN = st.dictionaries(KEYS, st.sampled_from("123").map(Html))
REGIONS = st.fixed_dictionaries({"one": CHILDREN, "two": CHILDREN})


def applied(page: dict[str, dict[str, str]], changes: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What the page's script does, on dictionaries."""
    for name, told in changes.items():
        page[name] |= told.get("set", {})
        if (keys := told.get("keys")) is not None:
            page[name] = {key: page[name][key] for key in keys}
    return page


@given(before=REGIONS, after=REGIONS)
def test_a_change_makes_the_one_into_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Whatever came, went, changed or moved: content and order are those of a new reader."""
    found = applied({name: dict(children) for name, children in before.items()}, change(before, after))
    assert {name: list(children.items()) for name, children in found.items()} == {
        name: list(children.items()) for name, children in after.items()
    }


@given(view=REGIONS)
def test_nothing_is_told_where_nothing_changed(view: dict[str, Any]) -> None:
    """Equal views have no difference."""
    assert change(view, {name: dict(children) for name, children in view.items()}) == {}


def test_only_what_changed_is_told() -> None:
    """A child among many that changed is told alone, and keys only where their order is another one."""
    before = {"rows": {str(at): Html(str(at)) for at in range(100)}}
    after = {"rows": before["rows"] | {"7": Html("new")}}
    assert change(before, after) == {"rows": {"set": {"7": "new"}}}


def test_a_view_is_its_pieces_and_its_regions() -> None:
    """Regions bear their names, and their children are found by them."""
    region = Region(name="rows", element="ul", children={"a": keyed("li", "a", "<x>")})
    view = View(title="t", section="s", pieces=(Html("<p>"), region))
    assert view.body() == '<p><ul id="rows" data-region><li data-key="a">&lt;x&gt;</li></ul>'
    assert view.regions() == {"rows": region.children}


def test_sentences_get_room_and_words_stay_whole() -> None:
    """A column of sentences is never a letter wide, and markup is measured by nobody."""
    drawn = row(
        "k", "a" * 50, "SchedulingGated", "no node has room for it: " + "9" * 30, Html("<i>" * 20), 7, heads="abcde"
    )
    assert [drawn.count(part) for part in ('<td class="long"', "<td data-head", "<th")] == [1, 3, 1]
    assert '<td class="long" data-head="c">no node has' in drawn


@pytest.mark.parametrize(("used", "marks"), [(None, 0), (0, 0), (1, 2), (100, 2)])
def test_a_gpu_of_which_nothing_is_used_has_no_mark(used: int | None, marks: int) -> None:
    """At the edge of an idle bar it looked like a slice; what is used is told in words as well."""
    gpu = GpuShown(
        node="n1",
        uuid="GPU-1",
        index=0,
        model="A100",
        health=Health.HEALTHY,
        reason="",
        isolation=("observe",),
        size=100,
        compute=0,
        memory=0,
        slices=(),
        used_compute=used,
        used_memory=used,
    )
    (drawn,) = re.findall(r'<path class="mark" d="([^"]*)"/>', str(gpu_bar(gpu, {})))
    assert drawn.count("M") == marks
