"""How long one event takes: 5,000 pods wait in 200 queues before 1,000 nodes of 8 GPUs; CPU time of the answer to each.

    .venv/bin/python benchmarks/queues/events.py [--pods 5000] [--queues 200] [--nodes 1000] [--events 1000]
        [--reserving 0] [--users 1] [--impatient] [--limits] [--model-limits] [--autoscale] [--doubted] [--many-doubted]
        [--each]

An event is a pod that ends, comes, or is deleted while it waits; the answer is a whole round of turns, and the binding
of whoever was let in. Two loads: few shapes, as people submit them, and every pod of a shape of its own. With
`--reserving` so many of the queues keep their guarantee even while they use nothing, with `--users` each queue has so
many, with `--impatient` all heads of lines have lost patience, so that nodes are kept for them, and with `--limits` all
queues have limits, those above them such that nearly all of it is in use, and cards have room for all who wait. With
`--model-limits` those above limit GPUs of a model as well, of which there are none. With `--autoscale` all queues show
pods to a cluster autoscaler, and with `--doubted` all users are in doubt, as after an outage of storage; with
`--many-doubted` there are five of them in each queue. `--each` measures each of these by itself, one after the other,
and none of them.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.lost.doubts import Kept
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from support.bench_figures import Asked
from support.bench_options import ask_events, sized
from support.queue_replay import Job, Replay

PATIENCE = QueueSettings().patience
# In ms, of 99 events of 100; what is asked is not met yet where hundreds of heads have lost patience, or a thousand
# users are in doubt.
_ASKED = 20.0
CASES = {
    "impatient": 120.0,
    "limits": _ASKED,
    "model_limits": _ASKED,
    "autoscale": _ASKED,
    "doubted": _ASKED,
    "many_doubted": 120.0,
}
_MANY_USERS = 5


def main() -> None:
    """Run both loads and print."""
    parser = sized(__doc__, queues=200)
    ask_events(parser, default=1_000)
    parser.add_argument("--reserving", type=int, default=0)
    parser.add_argument("--users", type=int, default=1)
    for case in CASES:
        parser.add_argument(f"--{case.replace('_', '-')}", action="store_true")
    parser.add_argument("--each", action="store_true")
    asked = parser.parse_args()
    together = [case for case in CASES if getattr(asked, case)]
    figures = Asked()
    for cases in [[], *([case] for case in CASES)] if asked.each else [together]:
        print("with " + (" and ".join(cases) or "nothing besides"))
        of_these = dict.fromkeys(CASES, False) | dict.fromkeys(cases, True)
        print_of(
            argparse.Namespace(**(vars(asked) | of_these)),
            figures,
            most=max((CASES[case] for case in cases), default=_ASKED),
        )
    figures.end()


def print_of(asked: argparse.Namespace, figures: Asked, *, most: float) -> None:
    """Both loads of one case."""
    for title, own in (("few shapes", False), ("a shape for each pod", True)):
        took = measure(asked, own_shapes=own)
        cuts = statistics.quantiles(took, n=100)
        print(
            f"{title}: p50 {1e3 * cuts[49]:.1f} ms, p99 {1e3 * cuts[98]:.1f} ms, at most {1e3 * max(took):.1f} ms "
            f"(n={len(took)})"
        )
        figures.at_most("p99 in ms", 1e3 * cuts[98], most)


def measure(asked: argparse.Namespace, *, own_shapes: bool) -> list[float]:
    """Seconds for each event."""
    chance = Random(1)
    replay, jobs = Replay(specs_of(asked), nodes=asked.nodes, cards=8), jobs_of(asked, own_shapes=own_shapes)
    for made, job in enumerate(jobs, start=1):
        replay.submit(job)
        if made % 500 == 0:
            replay.decide()
        if len(replay.queues) >= asked.pods:
            break
    replay.decide()
    if asked.impatient:
        replay.now += PATIENCE + 60.0
        # A few of them are looked at in each round.
        for _ in range(asked.queues):
            replay.decide()
    if asked.doubted or asked.many_doubted:
        doubt_all(replay)
    waits = [one for one in replay.jobs.values() if one.admitted is None]
    memory, shown = replay.queues.register.memory, len(replay.queues.register.showings.shown)
    impatient = memory.patience.impatient(now=replay.now)
    print(
        f"{len(replay.running)} run, {len(waits)} wait; {len(impatient)} heads are impatient, "
        f"nodes are kept for {sum(map(bool, memory.kept(now=replay.now).values()))}; {shown} are shown; "
        f"{len(replay.queues.register.lost_turns.doubted())} users are in doubt"
    )
    # As the centre does once all is read; what was measured before is no more.
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    took = []
    for number in range(asked.events):
        replay.now += 0.1
        ending, coming = chance.choice(_some(replay.running, "runs", number)), next(jobs)
        leaving = chance.choice(_some([one.name for one in waits if one.admitted is None][:50], "waits", number))
        began = time.process_time()
        if number % 3 == 0:
            replay.end(ending)
        elif number % 3 == 1:
            replay.submit(coming)
        else:
            replay.give_up(leaving)
        replay.decide()
        took.append(time.process_time() - began)
    return took


def doubt_all(replay: Replay) -> None:
    """A turn of each user's who waits has led to nothing, and another one that was given in doubt."""
    doubts = replay.queues.register.lost_turns.doubts
    for who in sorted({one.whose for one in replay.queues.waiting()}):
        for _ in range(2):
            kept = Kept(amounts=(100, 80_000), part=1e-4, lasted=PROMISE)
            doubts.came_to_nothing(who, kept, pod="a/pod", again=False, now=replay.now)


def _some(names: Iterable[str], does: str, number: int) -> list[str]:
    found = list(names)
    if not found:
        sys.exit(f"after {number} events nobody {does} any more: ask for more --pods or --nodes, or for fewer --events")
    return found


def specs_of(asked: argparse.Namespace) -> dict[str, QueueSpec]:
    """Ten queues, and all others below them."""
    guarantee = 100 * 8 * asked.nodes // (2 * asked.queues)
    all_there_is = 100 * 8 * asked.nodes
    # A third more than an equal part of what those above let them use.
    limited = asked.limits or asked.model_limits
    limits = (9 * all_there_is // 100, 12 * all_there_is // (10 * asked.queues)) if limited else (None, None)
    models = {"*H100*": ModelQuota(compute=Quota(limit=100))} if asked.model_limits else {}
    return {f"org-{number}": QueueSpec(compute=Quota(limit=limits[0]), models=models) for number in range(10)} | {
        f"q{number:03}": QueueSpec(
            parent=f"org-{number % 10}",
            compute=Quota(guarantee=guarantee, limit=limits[1], lending_limit=0 if number < asked.reserving else None),
            namespaces=("*",),
            autoscale=asked.autoscale,
        )
        for number in range(asked.queues)
    }


def jobs_of(asked: argparse.Namespace, *, own_shapes: bool) -> Iterator[Job]:
    """One job after the other, without end."""
    chance, users = Random(2), max(asked.users, _MANY_USERS) if asked.many_doubted else asked.users
    for made in count(1):
        queue = f"q{chance.randrange(asked.queues):03}"
        yield Job(
            name=f"j{made:06}",
            queue=queue,
            user=f"{queue}-{chance.randrange(users)}",
            kind="",
            at=float(made),
            runs=1e9,
            compute=chance.choice((25, 50, 75, 100)),
            memory=chance.randrange(1_000, 60_000) if own_shapes else 10_000,
        )


if __name__ == "__main__":
    main()
