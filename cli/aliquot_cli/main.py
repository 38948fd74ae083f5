"""`aliquot`: subcommands are imported when they are called, so that `--help` is there at once."""

from __future__ import annotations

import copy
import gc
import importlib
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

try:
    import click

    from aliquot_cli.handing_out import hand_out
    from aliquot_core.errors import AliquotError, NotAdmittedError
except KeyboardInterrupt:
    # Pressed in the first tenth of a second, before anything below could hear of it.
    sys.exit(128 + signal.SIGINT)

# Exit codes that scripts can use; click has 2 for wrong usage.
FAULTS = {"user": 3, "cluster": 4, "aliquot": 70}
NOT_ADMITTED = 5

COMMANDS = {
    "up": ("aliquot_cli.up:up", "Share this machine's GPUs (or simulated ones) without a cluster."),
    "down": ("aliquot_cli.down:down", "End what `aliquot up` has started, and forget it if asked to."),
    "run": ("aliquot_cli.run:run", "Run a program with a slice of a GPU."),
    "ps": ("aliquot_cli.ps:ps", "List who has a slice, and who waits for one."),
    "logs": ("aliquot_cli.logs:logs", "Print what a pod has printed."),
    "stop": ("aliquot_cli.stop:stop", "End pods."),
    "top": ("aliquot_cli.top.command:top", "Show GPUs, queues and who waits, as they change."),
    "agent": ("aliquot_cli.agent:agent", "Run the agent of one node."),
    "endpoint": ("aliquot_cli.endpoint:endpoint", "Run the small process that the kubelet speaks to."),
    "mps": ("aliquot_cli.mps:mps", "Keep the MPS daemons of one node's GPUs."),
    "scheduler": ("aliquot_cli.scheduler:scheduler", "Run one replica of the centre."),
    "explain": ("aliquot_cli.explain:explain", "Say why a pod is where it is, or why it waits."),
    "queue": ("aliquot_cli.queue:queue", "Show how the queues stand, and who is before whom."),
    "simulate": (
        "aliquot_cli.simulate:simulate",
        "Replay a recorded workload: what can be given away, and how long pods wait.",
    ),
    "snapshot": (
        "aliquot_cli.snapshot:snapshot",
        "Write down a cluster without its secrets, or replay what is decided of it.",
    ),
    "completion": ("aliquot_cli.completion:completion", "Let your shell complete commands and names."),
    "config": ("aliquot_cli.config:config", "Print every setting, its value and where it came from."),
}


def _show_help(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value and not ctx.resilient_parsing:
        hand_out(ctx.get_help())
        ctx.exit()


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version  # 10 ms that only this costs

        hand_out(f"aliquot, version {version('aliquot')}")
        ctx.exit()


# In place of click's own, which fail with a traceback where there is no room for what they print.
_helped = click.help_option("-h", "--help", callback=_show_help)
_versioned = click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)


class LazyGroup(click.Group):
    """A group that knows its commands' one-line help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import one command."""
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        with _nothing_collected():
            command: click.Command = copy.copy(getattr(importlib.import_module(module), attribute))
        command.params = list(command.params)
        return _helped(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """List the commands from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read what is typed before the command; help and version are printed here."""
        with _told():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Carry out the command."""
        with _told():
            return super().invoke(ctx)


@contextmanager
def _told() -> Iterator[None]:
    """Turn our errors into one line and an exit code that says whose fault it is."""
    try:
        yield
    except AliquotError as error:
        _end(error)
    except KeyboardInterrupt:
        # Whoever pressed Ctrl-C need not be told so; what has more to say of it handles the signal itself.
        sys.exit(128 + signal.SIGINT)
    except ExceptionGroup as group:
        # What failed among several that run beside each other; a defect among them keeps its traceback.
        ours, others = group.split(AliquotError)
        if ours is None or others is not None:
            raise
        _end(*_leaves(ours))


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """What is imported stays: to look through it for rubbish, now and later, costs a short command 5 ms."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _end(*errors: AliquotError) -> NoReturn:
    for error in errors:
        click.echo(f"aliquot: {error}", err=True)
    first = errors[0]
    sys.exit(NOT_ADMITTED if isinstance(first, NotAdmittedError) else FAULTS.get(first.fault, 1))


def _leaves(group: ExceptionGroup[AliquotError]) -> Iterator[AliquotError]:
    for one in group.exceptions:
        if isinstance(one, ExceptionGroup):
            yield from _leaves(one)
        else:
            yield one


@click.group(cls=LazyGroup)
@_versioned
@_helped
def main() -> None:
    """Many pods on one GPU, by 1 % of compute and 1 MiB of memory, fairly shared.

    \b
    Example:
      aliquot up --demo
    """


if __name__ == "__main__":
    main()
