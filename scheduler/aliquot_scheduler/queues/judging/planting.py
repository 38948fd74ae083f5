"""What queues and hardware of the moment come to: the tree, the cards as it counts them, and how pods are read by both.

When other queues are there, or other hardware makes any shape come to something else, all of it is made anew, and
everybody is to be put down by it. Less has changed where only gangs may start that could not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from aliquot_core.names import Names
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.judging.hardware import hardware_of
from aliquot_scheduler.queues.said.dues import Hardware
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.said.tree import Tree, models_of, plant
from aliquot_scheduler.rules.judging import Rules

# Shapes that nobody has any more are forgotten when there are so many.
_MANY_SHAPES = 20_000


class Change(Enum):
    """How much hardware has changed for those who wait."""

    NOTHING = auto()
    # Gangs may start that could not, and more may be given for good, or less.
    LOOKS = auto()
    # Shapes come to something else, or queues are due something else.
    EVERYTHING = auto()


class Planting:
    """All of it; `tree`, `cards` and `enrolment` are of when `plant_anew` was called last, or `graft`."""

    tree: Tree
    cards: Cards
    enrolment: Enrolment

    def __init__(self, *, names: Names, picture: Picture, user_label: str, rules: Rules) -> None:
        self._names = names
        self._picture = picture
        self._user_label = user_label
        self._rules = rules
        self._specs: dict[str, QueueSpec] = {}
        self._homes: dict[str, str] = {}
        self._hardware = Hardware()
        self._looks = 0
        # How often it was planted.
        self.count = 0
        self._plant()

    def queues_seen(self, specs: Mapping[str, QueueSpec]) -> bool:
        """These are all queues there are now; whether they were others before."""
        changed = dict(specs) != self._specs
        self._specs = dict(specs)
        return changed

    def home_seen(self, namespace: str, *, queue: str) -> bool:
        """A namespace's own queue, empty if it names none or is gone; whether it was another before."""
        if self._homes.get(namespace, "") == queue:
            return False
        self._homes[namespace] = queue
        if not queue:
            del self._homes[namespace]
        return True

    def change(self, *, waiting: int) -> Change:
        """What has become of hardware since this was asked last."""
        outdated = self.enrolment.outdated() or self.cards.registered > _MANY_SHAPES + 4 * waiting
        looks, self._looks = self._looks, self.enrolment.looks
        if outdated or (looks != self._looks and self._grows_otherwise()):
            return Change.EVERYTHING
        return Change.NOTHING if looks == self._looks else Change.LOOKS

    def graft(self) -> bool:
        """By the queues of now, as long as they count the same things; if they don't, all is to be planted anew.

        Then shapes and cards are what they were, and nobody need be read anew but whom the tree treats otherwise.
        """
        tree = plant(self._specs, hardware=self._hardware)
        if (tree.dimensions, tree.queueless) != (self.tree.dimensions, self.tree.queueless):
            return False
        self.count += 1
        self.tree = tree
        self.enrolment.graft(tree)
        return True

    def plant_anew(self) -> None:
        """By the hardware of now."""
        self._hardware = self._hardware_now()
        self._plant(before=self.tree)
        self._looks = self.enrolment.looks

    def _plant(self, *, before: Tree | None = None) -> None:
        self.count += 1
        self.tree = plant(self._specs, hardware=self._hardware)
        self.cards = Cards(picture=self._picture, dimensions=self.tree.dimensions, names=self._names, rules=self._rules)
        self.enrolment = Enrolment(
            names=self._names,
            cards=self.cards,
            tree=self.tree,
            homes=self._homes,
            user_label=self._user_label,
            before=before,
        )

    def _hardware_now(self) -> Hardware:
        return hardware_of(self._picture, models_of(self._specs))

    def _grows_otherwise(self) -> bool:
        """Whether of other hardware queues are due something else."""
        hardware = self._hardware_now()
        if hardware == self._hardware:
            return False
        self._hardware = hardware
        return plant(self._specs, hardware=hardware) != self.tree
