"""What happens to a GPU makes it sick or degraded, and what ends that; one GPU never changes another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.gpus.model import EventKind, Fault, GpuEvent, GpuUsage
from aliquot_agent.health.ailments import Book, Verdict, worse
from aliquot_agent.health.health_memory import memory, recalled
from aliquot_agent.health.judging import cleared, expired, heard, marked, sampled
from aliquot_agent.health.marks import Marks
from aliquot_agent.health.xids import Effect, HealthSettings, policy
from aliquot_core.inventory import Health
from aliquot_core.names import Names
from aliquot_core.settings import SettingsError, Sources
from support.ailing import HOT, POLICY, A, B, event, look, usage, xid

NAMES = Names()


class TestXids:
    """The table says what a number means, and an operator may say otherwise."""

    @pytest.mark.parametrize(
        ("number", "health"),
        [(48, Health.SICK), (79, Health.SICK), (94, Health.DEGRADED), (31, Health.HEALTHY), (9999, Health.DEGRADED)],
    )
    def test_the_table_decides(self, number: int, health: Health) -> None:
        """Fatal ones make it sick, a program's own fault nothing, an unknown number degraded."""
        assert heard(Book(), xid(number), policy=POLICY).of(A).health is health

    @pytest.mark.parametrize("numbers", [(94,), (63, 9999), (9999,), (31,), (79,), (94, 79)])
    def test_a_degraded_card_fails_only_by_what_the_table_names_of_cards(self, numbers: tuple[int, ...]) -> None:
        """A number that is not named may be a program's fault; and of a sick card another word is said."""
        book = Book()
        for number in numbers:
            book = heard(book, xid(number), policy=POLICY)
        failing = numbers in {(94,), (63, 9999)}
        assert book.of(A).failing is failing
        # A restart of the agent changes nothing of it.
        assert recalled(Book(), memory(book), policy=POLICY).of(A).failing is failing

    def test_a_program_s_fault_that_an_operator_has_degrade_is_not_the_card_s(self) -> None:
        """Else whoever writes a wrong pointer sends others away."""
        told = policy(HealthSettings(xids=("31=degraded", "48=degraded")), names=NAMES)
        assert not heard(Book(), xid(31), policy=told).of(A).failing
        assert heard(Book(), xid(48), policy=told).of(A).failing

    def test_heat_is_not_the_card_s_and_what_the_driver_or_an_operator_says_is(self) -> None:
        """Heat goes where the work goes."""
        hot = sampled(Book(), [usage(*HOT)], policy=POLICY, now=0.0, steady=0.0)
        hot = sampled(hot, [usage(*HOT)], policy=POLICY, now=400.0, steady=400.0)
        assert (hot.of(A).health, hot.of(A).failing) == (Health.DEGRADED, False)
        wanted = heard(hot, event(EventKind.RECOVERY_ACTION, 4), policy=POLICY)
        assert (wanted.of(A).health, wanted.of(A).failing) == (Health.DEGRADED, True)
        marks = Marks(degraded=frozenset({B}), reasons={"marked": "so it is"})
        marked_too = marked(hot, marks, gpus=[A, B], now=0.0)
        assert [marked_too.of(each).failing for each in (A, B)] == [False, True]

    def test_an_instance_fails_with_its_card(self) -> None:
        """It is a part of it; heat of its own says nothing else."""
        hot, failing = Verdict(health=Health.DEGRADED), Verdict(health=Health.DEGRADED, failing=True)
        assert worse(hot, failing).failing
        assert not worse(failing, Verdict(health=Health.SICK)).failing

    def test_settings_change_single_lines(self) -> None:
        """What is not named keeps its line."""
        changed = policy(HealthSettings(xids=("48=ignored", "31=sick", "other=ignored")), names=NAMES)
        assert [changed.effect(number) for number in (48, 31, 9999, 79)] == [
            Effect.IGNORED,
            Effect.SICK,
            Effect.IGNORED,
            Effect.SICK,
        ]

    @pytest.mark.parametrize("line", ["48", "x=sick", "48=dead", "other", "48=sick,49=sick"])
    def test_a_line_that_means_nothing_is_refused(self, line: str) -> None:
        """A misspelt table would be found out at the worst time."""
        with pytest.raises(SettingsError, match=r"is no line of the table; write lines such as 79=sick"):
            Sources(file={"health": {"xids": [line]}}).resolve("health", HealthSettings)

    def test_the_reason_says_what_and_what_to_do(self) -> None:
        """It is what a pod's author and an operator read."""
        reason = heard(Book(), xid(48), policy=POLICY).of(A).reason
        assert "XID 48: uncorrectable memory error" in reason
        assert NAMES.clear_health in reason

    def test_an_xid_without_a_gpu_touches_none(self) -> None:
        """Which GPU it was nobody knows; all of them would be wrong."""
        assert heard(Book(), xid(79, uuid=None), policy=POLICY) == Book()

    def test_the_worst_is_told_first_and_then_what_is_left(self) -> None:
        """Two XIDs are two ailments."""
        book = heard(heard(Book(), xid(94), policy=POLICY), xid(48, at=150.0), policy=POLICY)
        assert book.of(A).reason.startswith("XID 48")
        assert book.of(A).since == 150.0
        assert heard(book, xid(95, at=160.0), policy=POLICY).of(A) == book.of(A)


class TestWhatTheDriverWants:
    """Newer drivers say themselves what a GPU needs."""

    @pytest.mark.parametrize(("action", "health"), [(1, Health.SICK), (2, Health.SICK), (3, Health.DEGRADED)])
    def test_until_it_wants_nothing_more(self, action: int, health: Health) -> None:
        """Action 0 means that all is well."""
        book = heard(Book(), event(EventKind.RECOVERY_ACTION, action), policy=POLICY)
        assert book.of(A).health is health
        assert heard(book, event(EventKind.RECOVERY_ACTION, 0), policy=POLICY).of(A).health is Health.HEALTHY

    def test_no_time_heals_it(self) -> None:
        """It is a state and no incident: the driver says when it is over."""
        book = heard(Book(), event(EventKind.RECOVERY_ACTION, 3), policy=POLICY)
        assert expired(book, policy=POLICY, now=10.0**9).of(A).health is Health.DEGRADED

    def test_wanting_nothing_does_not_take_an_xid_back(self) -> None:
        """The table is the operator's."""
        book = heard(heard(Book(), xid(48), policy=POLICY), event(EventKind.UNAVAILABLE), policy=POLICY)
        after = heard(book, event(EventKind.RECOVERY_ACTION, 0), policy=POLICY)
        assert after.of(A).reason.startswith("XID 48")


class TestThrottling:
    """Heat for long makes a GPU degraded, and calm for as long makes it well."""

    def run(self, *samples: tuple[float, tuple[str, ...]]) -> Book:
        """Take samples at these seconds."""
        book = Book()
        for at, reasons in samples:
            book = sampled(book, [usage(*reasons)], policy=POLICY, now=at, steady=at)
        return book

    def test_long_is_long_without_a_break(self) -> None:
        """A short heat is nothing, and a break begins it anew."""
        assert self.run((0, HOT), (299, HOT)).of(A).health is Health.HEALTHY
        assert self.run((0, HOT), (290, ()), (295, HOT), (310, HOT)).of(A).health is Health.HEALTHY
        assert self.run((0, HOT), (300, HOT)).of(A).health is Health.DEGRADED

    def test_calm_must_last_as_well(self) -> None:
        """Else a GPU at its limit would be written to the node again and again."""
        hot = ((0, HOT), (300, HOT), (310, ("idle",)))
        assert self.run(*hot, (609, ())).of(A).health is Health.DEGRADED
        assert self.run(*hot, (610, ())).of(A).health is Health.HEALTHY

    def test_a_power_cap_is_nobody_s_trouble(self) -> None:
        """Somebody chose it."""
        assert self.run((0, ("power-cap",)), (1000, ("power-cap",))).of(A).health is Health.HEALTHY

    def test_a_driver_that_does_not_say_changes_nothing(self) -> None:
        """Unknown is not calm."""
        book = self.run((0, HOT), (300, HOT))
        silent = GpuUsage(uuid=A, memory_used_mib=0)
        for at in (310.0, 700.0):
            book = sampled(book, [silent], policy=POLICY, now=at, steady=at)
        assert book.of(A).health is Health.DEGRADED

    def test_the_reason_stays_while_it_lasts(self) -> None:
        """Each other text would be a write to the node."""
        first = self.run((0, HOT), (300, HOT))
        then = sampled(first, [usage("power-brake")], policy=POLICY, now=310, steady=310)
        assert then.of(A) == first.of(A)


_EVENTS = st.builds(
    GpuEvent,
    kind=st.sampled_from(EventKind),
    uuid=st.just(A),
    number=st.one_of(st.none(), st.integers(0, 200)),
    at=st.floats(0, 1000),
)
_STEPS: st.SearchStrategy[Callable[[Book], Book]] = st.one_of(
    _EVENTS.map(lambda one: lambda book: heard(book, one, policy=POLICY)),
    st.sampled_from(Fault).map(lambda fault: lambda book: look(book, B, a=fault)),
    st.just(lambda book: look(book, A, B)),
    st.floats(0, 10**6).map(lambda at: lambda book: sampled(book, [usage(*HOT)], policy=POLICY, now=at, steady=at)),
    st.just(lambda book: cleared(book, frozenset({A}), now=5.0)),
    st.just(
        lambda book: marked(
            book, Marks(cordoned=frozenset({A}), reasons={"cordoned": "c", "marked": "m"}), gpus=[A, B], now=5.0
        )
    ),
    st.just(lambda book: expired(book, policy=POLICY, now=10**7)),
)


@given(st.lists(_STEPS, max_size=20))
def test_one_bad_gpu_never_touches_the_others(steps: list[Callable[[Book], Book]]) -> None:
    """Whatever happens to one, the other is well and stays so."""
    book = look(Book(), A, B, now=1.0)
    for step in steps:
        book = step(book)
        assert book.of(B) == Verdict(since=1.0)


@given(st.lists(_STEPS, max_size=20))
def test_every_gpu_can_be_made_well_again(steps: list[Callable[[Book], Book]]) -> None:
    """Taking the marks away, a reset, and calm: nothing outlasts its cause."""
    book = Book()
    for step in steps:
        book = step(book)
    book = marked(book, Marks(), gpus=[A, B], now=10**8)
    book = look(look(book, B, a=Fault.LOST), A, B)
    for at in (2.0 * 10**6, 3.0 * 10**6):
        book = sampled(book, [usage()], policy=POLICY, now=at, steady=at)
    assert book.of(A).health is Health.HEALTHY
