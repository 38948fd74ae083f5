"""The agent is killed at each single step of what it does, and its successor brings every story to its good end.

A step is a turn of any of its tasks or an act on the outside (a request, a file written, renamed or removed, a look at
the record or at processes). Each story is played with a death at its first step, at its second, and so on, until it is
over before death comes.
"""

from __future__ import annotations

import pytest

from simulation.universe.stories import STORIES, Stage, Story


@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", STORIES)
def test_a_death_at_any_step_changes_no_ending(story: Story) -> None:
    """Killed anywhere, the agent leaves nothing that its successor can't finish, and gives nothing twice."""
    deaths = 0
    while True:
        stage = Stage(death=deaths + 1)
        stage.play(story)
        if not stage.died:
            break
        deaths += 1
    assert deaths > 40, f"the story is over after {deaths} steps: it does not show what it should"
