"""The rungs that a test climbs, and what stands on a pod that its agent has given up."""

from __future__ import annotations

from aliquot_agent.isolation.ladder import Rung, Rungs
from aliquot_core.names import Names

NAMES = Names()
RUNGS = Rungs(top=Rung.EVICT, warn=30.0, throttle=60.0, evict=120.0)


GIVEN_UP = {"type": NAMES.of("granted"), "status": "False", "reason": "OverUse", "message": "main uses too much"}
