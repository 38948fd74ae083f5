"""What people are told while the journal can't be written."""

from __future__ import annotations

from aliquot_standalone.apiserver.upkeep import Outage

FULL = "No space left on device"
BEGUN = "changes can't be written to disk and are refused; what runs goes on"
OVER = "changes are written to disk again"


def test_each_outage_is_told_once_when_it_begins_and_once_when_it_is_over() -> None:
    """However many refusals there are, and however long nobody writes; the next one is news again."""
    outage = Outage()
    looks = [(0, ""), (3, FULL), (7, FULL), *[(7, FULL)] * 9, (7, ""), (7, ""), (7, ""), (7, ""), (8, FULL)]
    told = [outage.look(refused=refused, trouble=trouble) for refused, trouble in looks]
    assert [words for words in told if words] == [BEGUN, OVER, BEGUN]
    assert (told.index(BEGUN), told.index(OVER), told[-1]) == (1, 14, BEGUN)


def test_writes_that_go_well_between_refusals_end_no_outage() -> None:
    """A disk that is nearly full takes the small ones: it would be told again and again."""
    outage = Outage()
    told = [outage.look(refused=1 + number // 2, trouble="") for number in range(100)]
    assert [words for words in told if words] == [BEGUN]


def test_a_refusal_between_two_looks_is_told_though_the_latest_write_went_well() -> None:
    """Somebody's change was not made."""
    assert Outage().look(refused=1, trouble="") == BEGUN
