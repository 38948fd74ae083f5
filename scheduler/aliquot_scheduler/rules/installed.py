"""All rules of a cluster: those that are installed beside Aliquot, and those that its settings write."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import entry_points

from aliquot_scheduler.rules.expressions import RuleSettings, expression_rules
from aliquot_scheduler.rules.judging import Failure, Rules, log_failure
from aliquot_scheduler.rules.limit import RuleError, alarm
from aliquot_scheduler.rules.rule import Rule

log = logging.getLogger(__name__)

GROUP = "aliquot.rules"


def rules_in_force(settings: RuleSettings, *, failed: Callable[[Failure], None] = log_failure) -> Rules:
    """All of them, each broken off when it takes too long; `failed` is told of those that fail."""
    installed, written = installed_rules(), expression_rules(settings)
    if twice := sorted(installed.keys() & written.keys()):
        told = "a rule of that name is installed, and one is written in the settings"
        raise RuleError(told, where=f"rule {twice[0]}", remedy="give one of them another name")
    if found := installed | written:
        log.info("rules are asked", extra={"rules": sorted(found)})
    return Rules(found, limit=alarm, failed=failed)


def installed_rules() -> dict[str, Rule]:
    """Load them; one that can't be loaded stops whoever starts, rather than be missed."""
    found: dict[str, Rule] = {}
    for point in entry_points(group=GROUP):
        try:
            found[point.name] = point.load()
        except Exception as error:
            what = f"it can't be loaded: {error!r:.200}"
            raise RuleError(what, where=f"rule {point.name} ({point.value})", remedy="mend or uninstall it") from error
    return found
