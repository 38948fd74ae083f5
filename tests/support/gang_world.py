"""Jobs whose pods start together, of few names that are used again and again, by two users; some are sent away whole.

Each Job makes its pods one by one, beside other Jobs, and makes others for those that go or fail. It ends only once as
many of it run as have to: until then they wait for each other and hold their cards. What must hold is worked out from
the pods alone, by who made them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import msgspec

from aliquot_scheduler.queues.said.settings import QueueSettings
from support.centre import WALL
from support.queue_stage import Stage, queue

STALE, GRACE = 60.0, 30.0
# Whoever lacks others gives its cards back after a minute; a run of two halves keeps one of them, which may be next.
LONGEST_ALONE = 3 * (STALE + GRACE)
SETTINGS = QueueSettings(user_label="who", stale_gang=STALE)
SPECS = {"a": queue(), "b": queue()}
replace = msgspec.structs.replace


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What makes pods of one group, until it has ended."""

    uid: str
    user: str
    group: str
    size: int
    least: int
    # Who makes how many of them: itself, or a launcher's Job and its workers'.
    makers: tuple[tuple[str, int], ...]

    @property
    def said(self) -> tuple[str, str, int, int]:
        """Of one user's, who says the same of a group's name."""
        return self.user, self.group, self.size, self.least


class GangWorld(Stage):
    """A small cluster that is too full for all of them; `chance` decides whatever a step leaves open."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._cards = self.chance.choice((2, 3, 4))
        self.jobs: dict[str, Job] = {}
        self._made = 0
        self._maker_of: dict[str, str] = {}
        self._goes_at: dict[str, float] = {}
        self._alone_since: dict[str, float] = {}
        super().__init__(SPECS, nodes=(self._cards,), settings=SETTINGS)

    # --- users -------------------------------------------------------------------------------------------------------
    def start_job(self) -> None:
        """A Job of a name that others have too; one with a launcher has a name of its own."""
        self._made += 1
        uid, size = f"j{self._made}", min(self._cards, self.chance.choice((2, 2, 3)))
        shared = self.chance.random() < 0.8
        makers = ((uid, size),) if shared else ((f"{uid}-l", 1), (f"{uid}-w", size - 1))
        self.jobs[uid] = Job(
            uid=uid,
            user=self.chance.choice(("ann", "ann", "mal")),
            group=self.chance.choice("gh") if shared else uid,
            size=size,
            least=self.chance.choice((size, size, 2)),
            makers=makers,
        )

    def make(self) -> None:
        """Some Job makes one of the pods that it lacks."""
        if lacking := [job for job in self.jobs.values() if self._lacks(job)]:
            self._make_one(self.chance.choice(lacking))

    def single(self) -> None:
        """A pod of no group takes a card when it can."""
        self._made += 1
        self._submit(f"x{self._made}", user="ann")

    def end_single(self) -> None:
        """One that runs comes to its end."""
        if running := [uid for uid in sorted(self.pods) if uid[0] == "x" and self._is_in(uid)]:
            self.end(self.chance.choice(running))

    def end_job(self) -> None:
        """One of which enough run comes to its end."""
        for job in list(self.jobs.values()):
            if len(self._staying(job)) >= job.least:
                del self.jobs[job.uid]
                self.end(*[uid for uid in self._pods_of(job) if self._is_in(uid)])
                for uid in self._pods_of(job):
                    self.gone(uid)
                return

    # --- what befalls them -------------------------------------------------------------------------------------------
    def send_away(self) -> None:
        """All of a Job's pods that run are asked to go, for others or with their node."""
        if running := [job for job in self.jobs.values() if self._staying(job)]:
            self._go(*self._staying(self.chance.choice(running)))

    def fail(self) -> None:
        """One that runs fails."""
        if running := [uid for job in self.jobs.values() for uid in self._staying(job)]:
            uid = self.chance.choice(running)
            self.see(replace(self.pods[uid], status=replace(self.pods[uid].status, phase="Failed")))
            self.gone(uid)

    def leave(self) -> None:
        """One that was asked to go is gone."""
        if self._goes_at:
            self.gone(self.chance.choice(sorted(self._goes_at)))

    def gone(self, uid: str) -> None:
        """A pod is deleted."""
        self._goes_at.pop(uid, None)
        self._maker_of.pop(uid, None)
        super().gone(uid)

    # --- the centre --------------------------------------------------------------------------------------------------
    def let_in(self) -> None:
        """Time passes, and a round of turns; whoever can't go on is sent back. All is checked."""
        self._look(after=self.chance.choice((1.0, 20.0, 40.0)))

    def restart(self) -> None:
        """Another leader begins, with nothing but what the API server has."""
        pods, turns, now = list(self.pods.values()), self.turns, self.now
        born = self._born
        super().__init__(SPECS, nodes=(self._cards,), settings=SETTINGS)
        self.now, self.turns, self._born = now, turns, born
        self.desk.tell_time(now)
        self.queues.recall({}, wall=WALL + now, now=now)
        self.chance.shuffle(pods)
        for pod in pods:
            self.see(pod)

    def check_to_the_end(self) -> None:
        """Nobody comes any more, and each Job makes what it lacks: all come to their end."""
        for _ in range(20 + 10 * len(self.jobs)):
            for job in [one for one in self.jobs.values() for _ in range(self._lacks(one))]:
                self._make_one(job)
            self._look(after=31.0)
            self.end(*[uid for uid in sorted(self.pods) if uid[0] == "x" and self._is_in(uid)])
            self.end_job()
        waits = [self.queues.notice(waiter) for waiter in self.queues.waiting()]
        assert not self.jobs, (self.jobs, sorted(self.pods), waits)

    def _look(self, *, after: float) -> None:
        before = {job.uid: self._staying(job) for job in self.jobs.values()}
        whole = {job.uid for job in self.jobs.values() if len(self._waiting(job)) >= job.size}
        self.run(after=after)
        for job in self.jobs.values():
            if len(staying := self._staying(job)) > len(before[job.uid]):
                together = sum(len(self._staying(one)) for one in self.jobs.values() if one.said == job.said)
                assert together >= job.least, f"{job} is not there with as many as start"
                if not before[job.uid] and job.uid in whole:
                    assert len(staying) >= job.least, f"{job} is all there, and started in part"
        self._go(*[pod.metadata.uid for pod in self.queues.stale_gangs(now=self.now)])
        for uid in [uid for uid, at in self._goes_at.items() if at <= self.now]:
            self.gone(uid)
        self._check_alone()

    def _check_alone(self) -> None:
        """Nobody holds a card for long without as many as have to run, once all of them are made."""
        alone = {job.uid for job in self.jobs.values() if 0 < len(self._staying(job)) < job.least}
        alone = {uid for uid in alone if not self._lacks(self.jobs[uid])}
        self._alone_since = {uid: self._alone_since.get(uid, self.now) for uid in sorted(alone)}
        for uid, since in self._alone_since.items():
            assert self.now - since <= LONGEST_ALONE, f"{self.jobs[uid]} holds cards and waits since {since}"

    # --- pods --------------------------------------------------------------------------------------------------------
    def _make_one(self, job: Job) -> None:
        maker = self.chance.choice([maker for maker, many in job.makers if self._made_by(maker) < many])
        self._made += 1
        uid = f"{job.uid}.{self._made}"
        notes = {"group-size": str(job.size), "group-min": str(job.least)}
        self._maker_of[uid] = maker
        self._submit(uid, user=job.user, group=job.group, made_by=maker, notes=notes)

    def _submit(
        self, uid: str, *, user: str, group: str = "", made_by: str = "", notes: Mapping[str, str] | None = None
    ) -> None:
        self.submit(uid, 100, queue="a", group=group, made_by=made_by, notes=notes, labels={"who": user})

    def _go(self, *uids: str) -> None:
        for uid in uids:
            pod = self.pods[uid]
            self._goes_at[uid] = self.now + GRACE
            meta = replace(pod.metadata, deletion_timestamp="2026-11-21T00:00:00Z")
            self.see(replace(pod, metadata=meta))

    def _lacks(self, job: Job) -> int:
        return job.size - sum(self._made_by(maker) for maker, _ in job.makers)

    def _made_by(self, maker: str) -> int:
        """Who is on the way out is replaced at once."""
        return sum(by == maker and uid not in self._goes_at for uid, by in self._maker_of.items())

    def _pods_of(self, job: Job) -> list[str]:
        makers = {maker for maker, _ in job.makers}
        return [uid for uid, by in self._maker_of.items() if by in makers]

    def _staying(self, job: Job) -> list[str]:
        return [uid for uid in self._pods_of(job) if self._is_in(uid) and uid not in self._goes_at]

    def _waiting(self, job: Job) -> list[str]:
        return [uid for uid in self._pods_of(job) if not self._is_in(uid)]

    def _is_in(self, uid: str) -> bool:
        return bool(self.pods[uid].spec.node_name)


STEPS: dict[Callable[[GangWorld], None], int] = {
    GangWorld.start_job: 4,
    GangWorld.make: 9,
    GangWorld.let_in: 8,
    GangWorld.single: 2,
    GangWorld.end_single: 2,
    GangWorld.end_job: 3,
    GangWorld.send_away: 1,
    GangWorld.fail: 1,
    GangWorld.leave: 2,
    GangWorld.restart: 1,
}
