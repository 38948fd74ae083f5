"""Tokens: the API server is asked whose they are and what those may list; its answer is good for a minute."""

from __future__ import annotations

import pytest

from aliquot_scheduler.page.reviews import GOOD_FOR, LONGEST_TOKEN, Reviewer
from support.clocks import VirtualClock
from support.page_stage import ScriptedReviews

USERS = {
    "good": ("ann", ("pods", "nodes")),
    "half": ("bob", ("pods",)),
    "none": ("eve", ()),
}


@pytest.fixture
def clock() -> VirtualClock:
    """Time by hand."""
    return VirtualClock()


@pytest.fixture
def api() -> ScriptedReviews:
    """Three users."""
    return ScriptedReviews(USERS)


@pytest.fixture
def reviewer(api: ScriptedReviews, clock: VirtualClock) -> Reviewer:
    """Who asks."""
    return Reviewer(transport=api, clock=clock)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("good", ""),
        ("half", "bob may not list nodes of the whole cluster."),
        ("none", "eve may not list pods of the whole cluster."),
        ("made-up", "The API server does not know this token."),
    ],
)
async def test_who_may_list_pods_and_nodes_may_look(reviewer: Reviewer, token: str, why: str) -> None:
    """Nobody sees on the page what they could not list."""
    assert await reviewer.why_not(token) == why


@pytest.mark.parametrize("token", ["", "x" * (LONGEST_TOKEN + 1)])
async def test_what_is_no_token_is_not_even_asked_about(reviewer: Reviewer, api: ScriptedReviews, token: str) -> None:
    """The API server is not bothered."""
    assert await reviewer.why_not(token)
    assert api.asked == []


async def test_the_access_is_that_of_whoever_the_token_is_of(reviewer: Reviewer, api: ScriptedReviews) -> None:
    """The second question is about the user that the first one has named, groups and all."""
    await reviewer.why_not("good")
    (_, token), *access = api.asked
    assert token == {"token": "good"}
    assert [(spec["user"], spec["groups"], spec["resourceAttributes"]["resource"]) for _, spec in access] == [
        ("ann", ["g"], "pods"),
        ("ann", ["g"], "nodes"),
    ]


async def test_an_answer_is_good_for_a_minute(reviewer: Reviewer, api: ScriptedReviews, clock: VirtualClock) -> None:
    """A right that was taken away ends, one that was given begins, without asking for each view."""
    assert await reviewer.why_not("good") == ""
    api.users = {}
    assert await reviewer.why_not("good") == ""
    assert len(api.asked) == 3
    await clock.advance(GOOD_FOR)
    assert await reviewer.why_not("good")
    api.users = USERS
    assert await reviewer.why_not("good")
    await clock.advance(GOOD_FOR)
    assert await reviewer.why_not("good") == ""


async def test_without_an_answer_nobody_looks_and_it_is_asked_again(reviewer: Reviewer, api: ScriptedReviews) -> None:
    """An API server that can't be asked lets nobody in, and that is not remembered."""
    api.fails = True
    assert "could not be asked" in await reviewer.why_not("good")
    api.fails = False
    assert await reviewer.why_not("good") == ""


async def test_what_is_remembered_is_bounded(reviewer: Reviewer, api: ScriptedReviews) -> None:
    """Whoever makes up tokens fills no memory."""
    for number in range(600):
        await reviewer.why_not(f"made-up-{number}")
    assert len(reviewer._known) <= 256
    assert len(api.asked) == 600
