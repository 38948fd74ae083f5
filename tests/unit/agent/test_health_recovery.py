"""What makes a GPU well again and what does not: an answer, a reset, an operator, time, a restart of the agent."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aliquot_agent.gpus.model import EventKind, Fault
from aliquot_agent.health.ailments import Book, Verdict
from aliquot_agent.health.health_memory import HealthFile, Remembered, memory, recalled
from aliquot_agent.health.judging import cleared, expired, heard, marked, sampled
from aliquot_agent.health.marks import Marks, read_marks
from aliquot_agent.health.xids import HealthSettings, policy
from aliquot_core.inventory import Health
from aliquot_core.names import Names
from aliquot_core.objects import Node
from support.ailing import HOT, POLICY, A, B, event, look, usage, xid

NAMES = Names()


class TestRecovery:
    """What makes a GPU well again, and what does not."""

    def test_answering_is_no_cure_for_an_xid(self) -> None:
        """A GPU with broken memory answers all the time."""
        book = look(heard(Book(), xid(48), policy=POLICY), A, B)
        assert book.of(A).health is Health.SICK

    def test_lost_and_back_is(self) -> None:
        """Only a reset brings a lost GPU back, and it mends what the XID told of."""
        book = look(heard(Book(), xid(79), policy=POLICY), B, a=Fault.LOST)
        assert book.of(A).health is Health.SICK
        assert look(book, A, B, now=300.0).of(A) == Verdict(since=300.0)

    def test_a_loss_that_only_an_event_told_of_counts_too(self) -> None:
        """It may be back before anybody looked."""
        book = heard(heard(Book(), xid(48), policy=POLICY), event(EventKind.LOST), policy=POLICY)
        assert look(book, A).of(A).health is Health.HEALTHY

    @pytest.mark.parametrize("fault", [Fault.SILENT, Fault.FAILED])
    def test_silent_and_back_is_not(self, fault: Fault) -> None:
        """A hanging call says nothing of a reset; it is well of the silence only."""
        book = look(heard(Book(), xid(48), policy=POLICY), B, a=fault)
        assert look(book, A, B).of(A).reason.startswith("XID 48")
        assert look(look(Book(), B, a=fault), A, B).of(A).health is Health.HEALTHY

    def test_a_lost_gpu_that_then_only_is_silent_is_still_lost(self) -> None:
        """So that its coming back is known for a reset."""
        book = look(heard(Book(), xid(48), policy=POLICY), a=Fault.LOST)
        assert look(look(book, a=Fault.SILENT), A).of(A).health is Health.HEALTHY

    def test_the_newest_trouble_is_told(self) -> None:
        """What it was before it is no more."""
        assert look(look(Book(), a=Fault.SILENT), a=Fault.FAILED).of(A).reason == "it is failed"

    def test_trouble_that_is_harmless_is_none(self) -> None:
        """Without ears for its XIDs it computes as before."""
        assert look(Book(), A, a=Fault.UNWATCHED).of(A).health is Health.HEALTHY

    def test_an_operator_clears_the_gpus_that_they_name(self) -> None:
        """And no other."""
        book = heard(heard(Book(), xid(48), policy=POLICY), xid(48, uuid=B), policy=POLICY)
        one = cleared(book, frozenset({A}), now=300.0)
        assert (one.of(A).health, one.of(B).health) == (Health.HEALTHY, Health.SICK)
        assert cleared(book, frozenset({"*"}), now=300.0).of(B).health is Health.HEALTHY

    def test_clearing_does_not_make_a_lost_gpu_answer(self) -> None:
        """What is wrong now is wrong whatever anybody says."""
        book = look(Book(), a=Fault.LOST)
        assert cleared(book, frozenset({A}), now=300.0).of(A).health is Health.SICK

    def test_a_clock_that_was_set_back_makes_no_hour_longer(self) -> None:
        """An XID that is dated after now counts from now on; without that it would stay for years."""
        book = heard(Book(), xid(94, at=10.0**9), policy=POLICY)
        book = expired(book, policy=POLICY, now=1000.0)
        assert book.of(A).health is Health.DEGRADED
        assert expired(book, policy=POLICY, now=4599.0).of(A).health is Health.DEGRADED
        assert expired(book, policy=POLICY, now=4600.0).of(A).health is Health.HEALTHY

    def test_time_heals_what_the_settings_say(self) -> None:
        """Fatal XIDs never by default, lesser ones after an hour without another."""
        book = heard(heard(Book(), xid(48), policy=POLICY), xid(94, uuid=B), policy=POLICY)
        book = heard(book, xid(94, uuid=B, at=1000.0), policy=POLICY)
        almost = expired(book, policy=POLICY, now=4599.0)
        assert almost.of(B) == Verdict(health=Health.DEGRADED, reason=book.of(B).reason, since=100.0, failing=True)
        later = expired(book, policy=POLICY, now=4600.0)
        assert (later.of(A).health, later.of(B).health) == (Health.SICK, Health.HEALTHY)
        soft = policy(HealthSettings(sick_for=60.0), names=NAMES)
        assert expired(book, policy=soft, now=160.0).of(A).health is Health.HEALTHY


class TestMarks:
    """An operator knows better."""

    def marks(self, **notes: str) -> Marks:
        """Marks as they stand on the node."""
        annotations = {NAMES.of(name.replace("_", "-")): text for name, text in notes.items()}
        return read_marks(msgspec.convert({"metadata": {"annotations": annotations}}, Node), names=NAMES)

    def test_a_mark_holds_as_long_as_it_stands(self) -> None:
        """And for whom it names."""
        book = marked(Book(), self.marks(degraded_gpus=f" {A},,", cordoned_gpus=B), gpus=[A, B], now=1.0)
        assert (book.of(A).health, book.of(B).health) == (Health.DEGRADED, Health.SICK)
        assert NAMES.cordoned_gpus in book.of(B).reason
        again = marked(book, self.marks(cordoned_gpus=A), gpus=[A, B], now=2.0)
        assert (again.of(A).health, again.of(B).health) == (Health.SICK, Health.HEALTHY)

    def test_a_star_means_all(self) -> None:
        """For a node that is to be looked after."""
        book = marked(Book(), self.marks(cordoned_gpus="*"), gpus=[A, B], now=1.0)
        assert {book.of(uuid).health for uuid in (A, B)} == {Health.SICK}

    def test_a_reset_leaves_marks_alone(self) -> None:
        """Only who made it takes it back."""
        book = look(marked(Book(), self.marks(cordoned_gpus=A), gpus=[A], now=1.0), a=Fault.LOST)
        assert look(book, A).of(A).reason.startswith("cordoned")

    def test_a_mark_that_still_stands_changes_nothing(self) -> None:
        """It is read again with every change of the node."""
        book = marked(Book(), self.marks(cordoned_gpus=A), gpus=[A], now=1.0)
        assert marked(book, self.marks(cordoned_gpus=A), gpus=[A], now=2.0) == book

    def test_a_name_of_no_gpu_is_told(self) -> None:
        """It is a typing error more often than not."""
        found = self.marks(degraded_gpus="GPU-x,*", clear_health=f"{A},GPU-y")
        assert found.strangers([A, B]) == {"GPU-x", "GPU-y"}


class TestMemory:
    """A restart of the agent makes no GPU well, a reboot does."""

    def test_what_events_said_is_judged_anew_by_the_table_of_now(self) -> None:
        """An operator who changed the table meant it."""
        book = heard(heard(Book(), xid(48), policy=POLICY), xid(94, uuid=B), policy=POLICY)
        kept = memory(look(book, A, B))
        assert recalled(Book(), kept, policy=POLICY).ailments == book.ailments
        changed = policy(HealthSettings(xids=("94=ignored",)), names=NAMES)
        assert recalled(Book(), kept, policy=changed).of(B).health is Health.HEALTHY

    def test_what_is_seen_anew_anyway_is_not_kept(self) -> None:
        """Whether a GPU answers, whether it is hot, what the node's annotations say."""
        book = look(Book(), a=Fault.LOST)
        book = sampled(book, [usage(*HOT)], policy=POLICY, now=0, steady=0)
        book = sampled(book, [usage(*HOT)], policy=POLICY, now=999, steady=999)
        assert memory(book) == ()

    def test_a_file_gives_back_what_it_was_given(self, tmp_path: Path) -> None:
        """Across processes."""
        path = str(tmp_path / "run/health.json")
        kept = (Remembered(uuid=A, event=EventKind.XID, number=48, since=1.0, last=2.0),)
        assert HealthFile(path).load() == ()
        HealthFile(path).save(kept)
        assert HealthFile(path).load() == kept

    @pytest.mark.parametrize("text", [b"", b"{", b'[{"uuid":"a"}]', b"\xff", b'[{"uuid":1}]'])
    def test_a_file_that_can_t_be_read_is_as_none(self, tmp_path: Path, text: bytes) -> None:
        """It is a cache."""
        path = tmp_path / "health.json"
        path.write_bytes(text)
        assert HealthFile(str(path)).load() == ()

    def test_a_file_of_more_than_a_node_can_have_is_as_none(self, tmp_path: Path) -> None:
        """16 GPUs with every XID there is are 60 kB; the agent would look through more for minutes."""
        path = tmp_path / "health.json"
        many = tuple(
            Remembered(uuid=f"GPU-{n}", event=EventKind.XID, number=48, since=1.0, last=2.0) for n in range(5000)
        )
        path.write_bytes(msgspec.json.encode(many))
        assert HealthFile(str(path)).load() == ()

    def test_a_folder_that_can_t_be_written_is_survived(self) -> None:
        """Health goes on without a memory."""
        memory_of_none = HealthFile("/proc/none/health.json")
        memory_of_none.save((Remembered(uuid=A, event=EventKind.XID, number=48, since=1.0, last=2.0),))
        assert memory_of_none.load() == ()
