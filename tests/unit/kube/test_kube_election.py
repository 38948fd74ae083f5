"""The election's state machine: its table, and its invariants under every interleaving that Hypothesis finds."""

from __future__ import annotations

import pytest

from aliquot_core.instants import seconds_of
from aliquot_core.objects import Lease, LeaseSpec, ObjectMeta
from aliquot_kube.election import (
    Election,
    ElectionSettings,
    ElectionSettingsError,
    Fence,
    Leave,
    Look,
    Make,
    Release,
    Rest,
    Step,
    Take,
    longest_renew,
)

TOLD_UNTIL = "example.org/told-until"
# Monotonic clocks begin anywhere.
START = 5_000.0


def lease(holder: str = "other", *, version: int = 1, uid: str = "a", duration: int | None = 10) -> Lease:
    """A lease as it may be found."""
    spec = LeaseSpec(
        holder_identity=holder,
        lease_duration_seconds=duration,
        acquire_time="2031-01-01T00:00:00.000000Z",
        renew_time=f"2031-01-01T00:00:{version:02d}.000000Z",
        lease_transitions=4,
    )
    return Lease(metadata=ObjectMeta(name="x", uid=uid, resource_version=str(version)), spec=spec)


def candidate() -> Election:
    """One who knows nothing yet."""
    return Election(identity="me", settings=ElectionSettings(), told_until=TOLD_UNTIL)


def follower(found: Lease | None) -> Election:
    """One who found this at the start."""
    election = candidate()
    election.seen(found, now=START)
    return election


def leader() -> Election:
    """One whose claim was sent at the start."""
    election = follower(lease("", version=1))
    election.written(lease("me", version=2), sent_at=START)
    return election


def lost(election: Election, *, after: float, rest: float = 0.5) -> Election:
    """One whose request came to nothing so long after the start."""
    election.failed(now=START + after, rest=rest)
    return election


def again(election: Election, *, after: float) -> Election:
    """One that saw the same again so long after the start."""
    election.seen(HELD, now=START + after)
    return election


def resigned(election: Election, *, after: float) -> Election:
    """One that was told to stop so long after the start."""
    election.resign(now=START + after)
    return election


HELD, FREE, MINE = lease(), lease(""), lease("me", version=2)
NEW = Lease(metadata=ObjectMeta(name="x", uid="n", resource_version="9"))

# who, seconds after the start, what is to be done; rests are named by their end.
TABLE: dict[str, tuple[Election, float, Step]] = {
    "nothing is known: look": (candidate(), 0, Look()),
    "held by another: look again soon": (follower(HELD), 0.1, Rest(START + 0.5)),
    "held by another, not looked for a while": (follower(HELD), 0.5, Look()),
    "held by another and ripe between two looks": (follower(HELD), 8.999, Look()),
    "ripe before the next look": (again(follower(HELD), after=8.6), 8.8, Rest(START + 9)),
    "unchanged for its duration but two looks: take that version": (follower(HELD), 9, Take(HELD)),
    "held by one with longer times": (follower(lease(duration=30)), 28, Look()),
    "held by one with longer times, and ripe": (follower(lease(duration=30)), 29, Take(lease(duration=30))),
    "held by one who says nothing of times": (follower(lease(duration=None)), 8.9, Look()),
    "free: take it at once": (follower(FREE), 0, Take(FREE)),
    "never held: somebody may believe to hold one that is gone": (follower(NEW), 8.9, Look()),
    "never held for so long: take it": (follower(NEW), 9, Take(NEW)),
    "none: make one": (follower(None), 0, Make()),
    "none, seen long ago: still none is taken": (follower(None), 20, Make()),
    "leads: rest until the renewal": (leader(), 1, Rest(START + 2)),
    "leads: renew": (leader(), 2, Take(MINE)),
    "a renewal failed: rest": (lost(leader(), after=3), 3.1, Rest(START + 3.5)),
    "a renewal failed: look before writing": (lost(leader(), after=3), 3.5, Look()),
    "a long rest ends with the belief": (lost(leader(), after=6, rest=3), 6, Rest(START + 7)),
    "belief is over, nobody has taken it": (leader(), 100, Take(MINE)),
    "a look failed: rest": (lost(follower(HELD), after=1), 1.4, Rest(START + 1.5)),
    "a look failed: look again, though ripe": (lost(follower(HELD), after=10), 10.5, Look()),
    "resigned as leader": (resigned(leader(), after=1), 1, Release(MINE)),
    "resigned, but the lease is lost sight of": (resigned(lost(leader(), after=3), after=3), 3.6, Look()),
    "resigned in vain": (resigned(leader(), after=1), 4, Leave()),
    "resigned while the API server is to be let alone": (
        resigned(lost(leader(), after=3, rest=9), after=3),
        3,
        Rest(START + 6),
    ),
    "resigned as follower": (resigned(follower(HELD), after=1), 1, Leave()),
}


@pytest.mark.parametrize("case", TABLE)
def test_each_state_has_its_step(case: str) -> None:
    """What is done is a function of what was told and of the instant."""
    election, after, step = TABLE[case]
    assert election.step(now=START + after) == step


def test_belief_counts_from_when_the_renewal_was_sent() -> None:
    """An answer that takes its time lengthens nothing."""
    election = leader()
    election.written(lease("me", version=3), sent_at=START + 3)
    assert election.leads(now=START + 9.999)
    assert not election.leads(now=START + 10)


def test_answer_that_comes_too_late_makes_no_leader() -> None:
    """A claim whose answer took longer than belief lasts is renewed before it counts."""
    election = follower(FREE)
    election.written(MINE, sent_at=START)
    assert not election.leads(now=START + 7)
    assert election.fence(now=START + 7) is None
    assert election.step(now=START + 7) == Take(MINE)


def test_older_answer_takes_nothing_back() -> None:
    """Belief is never shortened by an answer."""
    election = leader()
    election.written(lease("me", version=3), sent_at=START - 1)
    assert election.leads_until == START + 7


def test_seeing_our_own_lease_renews_no_belief() -> None:
    """A look after a lost renewal may show that it arrived; only the next answered write counts."""
    election = lost(leader(), after=5)
    election.seen(lease("me", version=3), now=START + 6)
    assert election.leads_until == START + 7
    assert election.step(now=START + 6) == Take(lease("me", version=3))


@pytest.mark.parametrize(
    "found", [lease(version=3), lease("", version=3), NEW, None], ids=["held", "free", "new", "none"]
)
def test_leader_that_sees_the_lease_with_another_believes_no_longer(found: Lease | None) -> None:
    """Whatever our clock says: it is not ours."""
    election = leader()
    election.seen(found, now=START + 4)
    assert not election.leads(now=START + 4)


def test_lease_that_vanished_is_waited_for() -> None:
    """Whoever held it may still believe to lead, and it may come back and vanish between two looks."""
    election = follower(HELD)
    election.seen(None, now=START + 9)
    assert election.step(now=START + 30) == Make()
    election.seen(NEW, now=START + 30)
    assert not isinstance(election.step(now=START + 38.9), Take)
    assert election.step(now=START + 39) == Take(NEW)


@pytest.mark.parametrize("change", [lease(version=2), lease("third"), lease(uid="b")], ids=["version", "holder", "uid"])
def test_any_change_begins_the_count_anew(change: Lease) -> None:
    """The lease must stand unchanged for so long, seen by our own clock."""
    election = follower(HELD)
    election.seen(HELD, now=START + 6)
    election.seen(change, now=START + 9)
    assert not isinstance(election.step(now=START + 17.9), Take)
    assert election.step(now=START + 18) == Take(change)


def test_lease_let_go_is_taken_at_once() -> None:
    """A leader stops believing before it lets go."""
    election = follower(HELD)
    election.seen(lease("", version=2), now=START + 1)
    assert election.step(now=START + 1) == Take(lease("", version=2))


def test_resigning_ends_belief_before_the_lease_is_let_go() -> None:
    """Whoever sees the lease free may take it at once."""
    election = resigned(leader(), after=1)
    assert not election.leads(now=START + 1)
    assert election.fence(now=START + 1) is None


def test_claim_that_is_answered_after_resigning_is_let_go() -> None:
    """It makes no leader, and it does not stand for ten seconds either."""
    election = resigned(follower(FREE), after=0.1)
    election.written(MINE, sent_at=START)
    assert not election.leads(now=START + 0.2)
    assert election.step(now=START + 0.2) == Release(MINE)
    election.released(lease("", version=3))
    assert election.step(now=START + 0.3) == Leave()


def test_resigning_twice_gives_no_more_time() -> None:
    """The first word counts."""
    election = resigned(resigned(leader(), after=0), after=2)
    assert election.step(now=START + 3) == Leave()


def test_requests_of_a_leader_end_with_its_belief() -> None:
    """So its end is told in time; all others may take as long as the setting says."""
    assert leader().patience(now=START + 2) == 1.5
    assert leader().patience(now=START + 6.5) == 0.5
    assert leader().patience(now=START + 9) == 1.5
    assert candidate().patience(now=START) == 1.5


def test_leader_is_known_while_its_lease_is_good() -> None:
    """Followers ask whoever holds the lease, until it is ripe; nobody is named by a free one."""
    assert follower(HELD).holder(now=START + 8.9) == HELD
    assert follower(HELD).holder(now=START + 9) is None
    assert follower(FREE).holder(now=START) is None
    assert follower(None).holder(now=START) is None
    assert leader().holder(now=START + 6.9) == MINE
    assert leader().holder(now=START + 7) is None


NEVER = "1970-01-01T00:00:00.000000Z"


def beat(second: int) -> str:
    """As it stands in the lease's version of that number."""
    return f"2031-01-01T00:00:{second:02d}.000000Z"


def at(second: int) -> float:
    """The same instant, as a wall clock counts it."""
    instant = seconds_of(beat(second))
    assert instant is not None
    return instant


def test_whoever_begins_knows_when_the_last_leader_beat() -> None:
    """In its whole term; then when it beat itself. A claim of which it was not told is none."""
    election = follower(lease(version=3))
    election.seen(lease("", version=4), now=START + 1)
    election.written(lease("me", version=5), sent_at=START + 1)
    assert election.beat_before == beat(4)
    election.written(lease("me", version=6), sent_at=START + 3)
    assert election.beat_before == beat(4)
    lost(election, after=12).seen(lease("me", version=7), now=START + 12)
    election.written(lease("me", version=8), sent_at=START + 13)
    assert election.beat_before == beat(6)


@pytest.mark.parametrize("found", [None, NEW])
def test_where_nobody_led_nobody_has_beaten(found: Lease | None) -> None:
    """A lease that was just made says nothing; of one that is gone that was seen counts."""
    election = follower(found)
    election.written(MINE, sent_at=START + 9)
    assert election.beat_before == ""
    other = follower(HELD)
    other.seen(found, now=START + 1)
    other.written(MINE, sent_at=START + 10)
    assert other.beat_before == beat(1)


def saying(version: int, word: str | None, *, holder: str = "other") -> Lease:
    """A lease with what its holder has left to say of the leaders before."""
    made = lease(holder, version=version)
    made.metadata.annotations.update({TOLD_UNTIL: word} if word else {})
    return made


# What is seen of others until it is free, one after the other; and when the last of them beat that had read all.
PASSED: dict[str, tuple[list[Lease], str]] = {
    "it had read all": ([saying(3, beat(1)), saying(4, beat(4)), saying(5, beat(5))], beat(5)),
    "it had not": ([saying(2, beat(2)), saying(3, beat(2)), saying(4, beat(2))], beat(2)),
    "it had not, and let go": ([saying(3, beat(2)), saying(4, beat(2), holder="")], beat(2)),
    "nor had the one before": ([saying(3, beat(2)), saying(4, beat(2), holder="another")], beat(2)),
    "nobody ever had": ([saying(3, NEVER)], NEVER),
    "an older version's, which says nothing": ([saying(3, None), saying(4, None)], beat(4)),
    "an older version's, which leaves what is said": ([saying(3, beat(3)), saying(4, beat(3))], beat(3)),
}


@pytest.mark.parametrize("row", PASSED)
def test_a_leader_that_had_not_read_all_by_its_end_is_passed_over(row: str) -> None:
    """What happened before its term it has told nobody of; whoever leads says so until it has read all itself."""
    found, before = PASSED[row]
    election = candidate()
    for one in found:
        election.seen(one, now=START)
    assert election.word(now=START + 20, wall=at(6)) == before
    election.written(saying(6, before, holder="me"), sent_at=START + 20)
    assert (election.beat_before, election.word(now=START + 21, wall=at(7))) == (before, before)
    election.has_read()
    assert election.word(now=START + 23, wall=at(7)) == beat(7)
    election.written(saying(7, beat(7), holder="me"), sent_at=START + 23)
    assert election.beat_before == before
    # Its next term begins from there, and is unread again.
    assert election.word(now=START + 40, wall=at(8)) == beat(7)
    election.written(saying(8, beat(7), holder="me"), sent_at=START + 40)
    assert (election.beat_before, election.word(now=START + 41, wall=at(9))) == (beat(7), beat(7))


def test_a_term_that_ends_before_all_is_read_counts_for_nothing() -> None:
    """Though it was our own; what is read after its end is of no term."""
    election = candidate()
    election.seen(saying(2, beat(2)), now=START)
    election.written(saying(3, beat(2), holder="me"), sent_at=START + 9)
    election.has_read()
    assert election.word(now=START + 30, wall=at(4)) == beat(2)
    election.written(saying(4, beat(2), holder="me"), sent_at=START + 30)
    assert (election.beat_before, election.word(now=START + 31, wall=at(5))) == (beat(2), beat(2))


def test_where_nobody_is_known_to_have_led_it_says_so() -> None:
    """Else whoever comes next would take its own word for one who had read all."""
    assert follower(NEW).word(now=START + 9, wall=at(9)) == NEVER


def test_fence_is_the_term() -> None:
    """It grows with each change of hands."""
    assert leader().fence(now=START) == Fence(transitions=4, acquired="2031-01-01T00:00:00.000000Z")
    assert follower(HELD).fence(now=START) is None
    assert Fence(transitions=4, acquired="z") < Fence(transitions=5, acquired="a")


@pytest.mark.parametrize("times", [{"duration": 9.9}, {"renew": 2.1}, {"margin": 3.1}, {"request": 1.6}, {"look": 0.6}])
def test_times_that_do_not_go_together_are_refused(times: dict[str, float]) -> None:
    """One lost request must not cost the leadership; the defaults are just good enough."""
    assert ElectionSettings().duration == 10
    with pytest.raises(ElectionSettingsError, match="one lost request"):
        ElectionSettings(**times)


@pytest.mark.parametrize("duration", [10.0, 11.0, 60.0])
def test_who_sees_a_lease_knows_how_seldom_it_is_renewed_at_the_most(duration: float) -> None:
    """By default it is renewed as often as that; one who renewed it less often would be refused its settings."""
    longest = longest_renew(duration)
    assert ElectionSettings(duration=duration, renew=longest).renew == longest
    with pytest.raises(ElectionSettingsError):
        ElectionSettings(duration=duration, renew=longest + 0.1)
    assert longest_renew(ElectionSettings().duration) == ElectionSettings().renew


def test_others_never_take_over_before_a_leader_has_stopped_believing() -> None:
    """They begin two looks before the lease ends, so that its end is the latest; belief must be over by then."""
    assert ElectionSettings(margin=1.01).early == 1.0
    with pytest.raises(ElectionSettingsError, match="1 s before the lease ends, two looks"):
        ElectionSettings(margin=1.0)
