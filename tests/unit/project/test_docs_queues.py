"""docs/queues.md can be checked by hand, and is checked here: its numbers, its fields, what it points at."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest

from aliquot_scheduler.queues.charged.shares import exact_shares, shares
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, plant
from support.share_oracle import Oracle

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "queues.md").read_text()
CAPACITY = 1000


def worked() -> dict[str, dict[str, str]]:
    """The table of the example, by queue."""
    lines = PAGE.partition("<!-- worked -->\n")[2].partition("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heading, rows = cells[0], cells[2:]
    return {row[0]: dict(zip(heading, row, strict=True)) for row in rows}


def number(text: str) -> int | None:
    """A cell; empty is left out."""
    return int(text) if text else None


def planted() -> dict[str, QueueSpec]:
    """The queues of the example."""
    return {
        name: QueueSpec(
            parent=row["parent"],
            compute=Quota(
                guarantee=number(row["guarantee"]),
                limit=number(row["limit"]),
                lending_limit=number(row["lendingLimit"]),
                weight=int(row["weight"]),
            ),
        )
        for name, row in worked().items()
    }


def test_the_worked_example_comes_out() -> None:
    """By the code that decides, exactly: nothing is rounded in it."""
    asked = {name: int(row["asks"]) for name, row in worked().items() if row["asks"]}
    due = {name: int(row["is due"]) for name, row in worked().items()}
    tree = plant(planted())
    exact = exact_shares(tree, dimension=COMPUTE, capacity=CAPACITY, demand=asked)
    assert {name: exact[name] for name in due} == due
    leaves = Oracle(planted(), asked).shares(CAPACITY)
    assert {name: due[name] for name in leaves} == leaves
    rounded = shares(tree, dimension=COMPUTE, capacity=CAPACITY, demand=asked)
    assert {name: rounded[name] for name in due} == due


@pytest.mark.parametrize(("count", "asks", "capacity"), [(2, 90, 100), (8, 100, 400)])
def test_what_is_said_of_less_than_a_gpu_is_so(count: int, asks: int, capacity: int) -> None:
    """Two that ask 0.9 of one GPU, and eight that ask one of four: half a GPU each."""
    names = [f"q{at}" for at in range(count)]
    tree = plant({name: QueueSpec() for name in names})
    found = exact_shares(tree, dimension=COMPUTE, capacity=capacity, demand=dict.fromkeys(names, asks))
    assert {found[name] for name in names} == {Fraction(50)}


@pytest.mark.parametrize(
    "field", [field.encode_name for kind in (QueueSpec, Quota) for field in msgspec.structs.fields(kind)]
)
def test_every_field_is_told(field: str) -> None:
    """In the tables, or in the manifest above them."""
    assert re.search(rf"[`{{ ]{field}[`:}},]", PAGE), field


@pytest.mark.parametrize("setting", ["half_life", "penalty", "patience", "hold", "user_label"])
def test_settings_that_are_named_are_there(setting: str) -> None:
    """Under the section that the page names."""
    assert f"queues.{setting}" in PAGE
    assert setting in QueueSettings.__struct_fields__


def test_what_it_points_at_is_there() -> None:
    """Files and tests."""
    for path in re.findall(r"`((?:tests|scheduler|daemonset|docs)/[^`]+\.(?:py|yaml|md))`", PAGE):
        assert (ROOT / path).exists(), path


def anchors(marks: str) -> set[str]:
    """Of the headings with so many marks."""
    found = re.findall(rf"^{marks} (.+)$", PAGE, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_part_is_in_the_list_at_the_top() -> None:
    """It is a long page: who looks for something at night finds the part by what they want to know."""
    listed = set(re.findall(r"\]\(#([^)]+)\)", PAGE.partition("\n## ")[0]))
    assert len(anchors("##")) > 10
    assert anchors("##") <= listed


def test_every_link_within_the_page_leads_to_a_heading() -> None:
    """A heading that is renamed is found by nobody who was sent there."""
    links = re.findall(r"\]\(#([^)]+)\)", PAGE)
    assert set(links) <= anchors("##+"), set(links) - anchors("##+")
