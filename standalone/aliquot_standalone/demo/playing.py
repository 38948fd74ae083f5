"""The demonstration on a machine that is up: the story, then a crowd for as long as somebody looks."""

from __future__ import annotations

import random
from collections.abc import Callable

from aliquot_agent.settings import NVML
from aliquot_core.clock import Clock
from aliquot_core.errors import UserError
from aliquot_standalone.composition import Whole
from aliquot_standalone.demo.crowd import Crowd
from aliquot_standalone.demo.stage import Stage
from aliquot_standalone.demo.story import LEAST, Story
from aliquot_standalone.plan import SIMULATED, Plan


class NoStageError(UserError):
    """The demonstration can't be given here."""


def check_stage(plan: Plan, *, remembered: str) -> None:
    """Refuse at once what would only wait, or would take away what somebody works on."""
    if plan.played_gpus < LEAST:
        raise NoStageError(
            f"the demonstration needs {LEAST} GPUs on simulated nodes, and here are {plan.played_gpus}",
            where="--simulate",
            remedy=f"write {SIMULATED}, or leave --simulate out",
        )
    if remembered == NVML:
        raise NoStageError(
            "this folder is that of the machine's own GPUs, which the demonstration would take away",
            where="--demo",
            remedy="name another folder with --folder",
        )


def prepared(whole: Whole, *, clock: Clock, say: Callable[[str], None]) -> tuple[Story, Crowd]:
    """Make both for a machine that has simulated nodes."""
    stage = Stage(transport=whole.over_http(), names=whole.names, clock=clock)
    plan = whole.plan
    if whole.fleet is None:
        raise NoStageError("no node is simulated", where="--demo")
    story = Story(
        stage=stage,
        breaking=whole.fleet,
        simulated=list(whole.fleet.nodes),
        played=plan.played_gpus,
        real=sum(len(node.models) for node in plan.full),
        say=say,
    )
    return story, Crowd(stage=stage, chance=random.Random())  # noqa: S311 - it is a crowd
