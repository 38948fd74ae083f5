"""What `aliquot simulate` hears of settings: rules about places, and a mix of requests; and what it says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
import msgspec

from aliquot_cli.sources import gather
from aliquot_scheduler.rules.expressions import RuleSettings
from aliquot_scheduler.rules.installed import rules_in_force
from aliquot_scheduler.rules.judging import Failure, Rules
from aliquot_scheduler.simulating.workload import Machine
from aliquot_scheduler.worth.given import PlacementSettings
from aliquot_scheduler.worth.mix import Mix


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force for a run."""

    rules: Rules
    mix: Mix | None


def heard_from(file: str | None) -> Heard:
    """As the centre reads them, refusing what it would refuse in any section.

    A rule that fails is told once, and again when it is asked no more.
    """
    sources = gather(file=file, whole=True)
    told: set[str] = set()

    def failed(failure: Failure) -> None:
        if failure.set_aside:
            last = f"aliquot: rule {failure.rule} has taken too long three times in a row, and is asked no more"
            click.echo(last, err=True)
        elif failure.rule not in told:
            why = f"aliquot: rule {failure.rule} has failed: {failure.why}; such a pod is placed without it"
            click.echo(why, err=True)
        told.add(failure.rule)

    rules = rules_in_force(sources.resolve("rules", RuleSettings).value, failed=failed)
    return Heard(rules=rules, mix=sources.resolve("placement", PlacementSettings).value.given)


def warn_of_labels(rules: Rules, machines: Sequence[Machine], *, nodes: str) -> None:
    """Rules about labels find none in a list without them: what they say then is not what the cluster's would."""
    readers = rules.readers_of_labels
    if readers and not any(machine.labels for machine in machines):
        told = f"aliquot: {nodes} has no labels of nodes (column labels), which rules may look at: {', '.join(readers)}"
        click.echo(told, err=True)


def failures_text(failures: Mapping[str, int]) -> str:
    """A line below a result, if any rule has failed."""
    found = ", ".join(f"{name} {count} times" for name, count in sorted(failures.items()))
    return f"\nrules that failed: {found}" if found else ""
