"""What benchmarks of the centre and of queues are asked alike: how large a cluster they measure, how many events."""

from __future__ import annotations

import argparse

_LEAST_EVENTS = 2


def sized(what: str | None, *, queues: int) -> argparse.ArgumentParser:
    """Options of a benchmark that does `what`, on as large a cluster as is asked for."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000, help="of 8 GPUs each (default: %(default)s)")
    parser.add_argument("--pods", type=int, default=5_000, help="that lie or wait there (default: %(default)s)")
    parser.add_argument("--queues", type=int, default=queues, help="in which they are (default: %(default)s)")
    return parser


def ask_events(parser: argparse.ArgumentParser, *, default: int) -> None:
    """How many events are measured, of which a percentile is told."""
    parser.add_argument("--events", type=_enough, default=default, help="that are measured (default: %(default)s)")


def _enough(text: str) -> int:
    if (count := int(text)) < _LEAST_EVENTS:
        raise argparse.ArgumentTypeError(f"{count}: a percentile needs {_LEAST_EVENTS} events at least")
    return count
