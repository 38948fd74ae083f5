"""The agent is killed at each single step of what it does, and its successor brings every story to its good end.

A step is a turn of any of its tasks or an act on the outside (a request, a file written, renamed or removed, a look at
the record or at processes). Each story is played with a death at its first step, at its second, and so on, until it is
over before death comes. `ALIQUOT_STEP=17` plays that death alone.
"""

from __future__ import annotations

import itertools
import os

import pytest

from simulation.universe.stories import STORIES, Stage, Story

FEWEST_STEPS = 40


@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", STORIES)
def test_a_death_at_any_step_changes_no_ending(story: Story) -> None:
    """Killed anywhere, the agent leaves nothing that its successor can't finish, and gives nothing twice."""
    first = int(os.environ.get("ALIQUOT_STEP", "1"))
    for death in itertools.count(first):
        stage = Stage(story, death=death)
        stage.play()
        if not stage.died or "ALIQUOT_STEP" in os.environ:
            break
    assert death > FEWEST_STEPS or first > 1, f"the story is over after {death} steps: it does not show what it should"
