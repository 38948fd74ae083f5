"""`aliquot run`: a program with a slice of a GPU, as if it ran here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from aliquot_cli.cluster import Connection, connected, is_embedded
from aliquot_cli.creating import create
from aliquot_cli.handing_out import OutputError, check_open, hand_out, standard_output
from aliquot_cli.names_of import complete_queues
from aliquot_cli.options import Call, form_option, make_call, namespace_option, server_options
from aliquot_cli.settings import RunSettings
from aliquot_cli.submitting import CONTAINER, Wish, WishError, manifest, name_for, passed_on
from aliquot_cli.tables import tame
from aliquot_core.names import Names
from aliquot_kube.clock import SystemClock
from aliquot_scheduler.queues.said.settings import QueueSettings

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_TAIL = 5
# What scripts take: no form that -o knows.
_BARE = ""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--compute", type=click.IntRange(min=1), help="Percent of a GPU; 250 is two and a half.")
@click.option("--memory", type=click.IntRange(min=1), help="MiB of GPU memory (default: compute's share of the card).")
@click.option("--gpus", type=click.IntRange(min=1), help="Spread evenly over so many GPUs.")
@click.option("--model", default="", metavar="GLOB", help="GPU models allowed, or with ! forbidden.")
@click.option(
    "--queue",
    default="",
    metavar="NAME",
    shell_complete=complete_queues,
    help="Where to wait (default: the namespace's own queue).",
)
@click.option("--priority-class", default="", metavar="NAME", help="The pod's PriorityClass.")
@click.option("--name", default="", help="The pod's name (default: after the program).")
@click.option("-e", "--env", "said", multiple=True, metavar="K[=V]", help="Pass a variable on; K alone: as it is here.")
@click.option("--workdir", default="", metavar="FOLDER", help="Where to run (default: here; with --image: its own).")
@click.option("--image", default="", help="In a cluster: the container's image.")
@click.option("--detach", is_flag=True, help="Print the pod's name, and leave it alone.")
@form_option(usual=None, text="How to print the pod, with --detach (default: its bare name).")
@click.option("--keep", is_flag=True, help="Do not delete the pod at the end.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing of waiting; errors are told.")
@namespace_option
@server_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(*, detach: bool, form: str | None, keep: bool, quiet: bool, **asked: Any) -> None:
    """Run a program with a slice of a GPU: wait for it, print what it prints, return its exit code.

    On `aliquot up` the program runs on this machine, in this folder. Of the environment go along: PATH, HOME, USER,
    LANG, TZ, PYTHONPATH, LD_LIBRARY_PATH and those of virtual environments; the rest only by --env, since everybody
    who may read pods reads it. In a cluster give --image, and nothing goes along but --env. Input is not passed on.

    Ctrl-C ends it as gracefully as the pod allows, a second one kills it. Who asks for neither compute nor memory gets
    10 % of a GPU (setting run.compute). Exit codes: the program's own; 130 and 137 after Ctrl-C; 141 if nobody reads
    its output; 3 if the pod is refused; 4 if it is lost.

    \b
    Examples:
      aliquot run --compute 30 --memory 8000 -- python train.py --epochs 3
      aliquot run --compute 200 --gpus 4 --queue team-a --detach -- ./bench.sh
      aliquot run --context prod --image pytorch/pytorch:2.9 --compute 50 -- python train.py
    """
    if form and not detach:
        raise click.UsageError("-o goes with --detach: else what is printed is the program's own")
    call = make_call(**{name: asked.pop(name) for name in ("file", "kubeconfig", "context")})
    _leave(asyncio.run(_run(call, asked, detached=(form or _BARE) if detach else None, keep=keep, quiet=quiet)))


def _leave(code: int) -> NoReturn:
    """End at once: to take the interpreter apart costs whoever waits 15 ms, of the 150 that a run may add."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):  # nobody reads it any more, or it was closed from the first
            stream.flush()
    os._exit(code)


async def _run(call: Call, asked: dict[str, Any], *, detached: str | None, keep: bool, quiet: bool) -> int:
    """Submit and follow, or print the pod in the form `detached` and leave it alone; the exit code."""
    say = _silent if quiet else _tell
    # Before there is a pod that nobody would hear of.
    check_open()
    async with connected("run", place=call.place, say=say) as connection:
        here = call.place.up is not None or await is_embedded(connection.transport)
        wish = make_wish(asked, call=call, namespace=connection.namespace, here=here)
        made = manifest(wish, names=call.names)
        if detached is not None:
            return _hand_out_pod(wish, await create(connection.transport, made), form=detached, names=call.names)
        # From before it is made: whoever interrupts then has the pod taken away, too.
        interrupts = _interrupts()
        created = await create(connection.transport, made)
        return await _attend(
            created,
            keep=keep,
            connection=connection,
            call=call,
            interrupts=interrupts,
            say=lambda text: say(_line(wish, text)),
            warn=lambda text: _tell(_line(wish, text)),
        )


def _hand_out_pod(wish: Wish, created: bytes, *, form: str, names: Names) -> int:
    """Print it, or name the pod in the error: it goes on, and nobody else knows what it is called. The exit code."""
    left = f"pod {wish.namespace}/{wish.name} is made all the same: `aliquot stop {wish.name}` ends it"
    try:
        hand_out(wish.name if form == _BARE else _in_form(created, form=form, names=names))
    except OutputError as error:
        raise OutputError(error.what, where=error.where, remedy=left) from None
    except BrokenPipeError:
        from aliquot_cli.one_run import UNHEARD  # with what follows a pod, which nobody does here

        _tell(f"aliquot: standard output: nobody reads it; {left}")
        return UNHEARD
    return 0


def _in_form(created: bytes, *, form: str, names: Names) -> str:
    """As the API server has it; for people as `aliquot ps` lists it."""
    from aliquot_cli.pod_rows import pod_rows  # with numpy and the centre's code, for one form
    from aliquot_cli.pod_table import pod_table
    from aliquot_cli.printing import printed
    from aliquot_cli.tables import table
    from aliquot_core.objects import Pod
    from aliquot_kube.wire import Decoder

    rows = pod_rows([Decoder(Pod).object(created)], names=names)
    return printed(
        msgspec.json.decode(created),
        form=form,
        text=lambda wide: table(pod_table(rows, wide=wide, everywhere=False, now=time.time())),
        lines=lambda: [f"pod/{row.name}" for row in rows],
    )


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _silent(_: str) -> None:
    """For whoever wants no word of waiting."""


def _line(wish: Wish, text: str) -> str:
    return f"aliquot: {wish.name}: {tame(text)}"


def _interrupts() -> asyncio.Queue[None]:
    """Signals that ask for an end, in place of that end."""
    interrupts: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupts.put_nowait, None)
    return interrupts


async def _attend(
    created: bytes,
    *,
    keep: bool,
    connection: Connection,
    call: Call,
    interrupts: asyncio.Queue[None],
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> int:
    # A quarter of what a run imports: the pod takes longer to run than this takes.
    from aliquot_cli.attending import Attending
    from aliquot_cli.pod_output import writer_to

    attending = Attending(
        connection=connection,
        names=call.names,
        clock=SystemClock(),
        random=random.random,
        write=writer_to(standard_output()),
        say=say,
        warn=warn,
        places=partial(_tell_places, connection=connection, call=call),
        interrupts=interrupts,
        container=CONTAINER,
    )
    return await attending.attend(created, keep=keep)


def make_wish(asked: dict[str, Any], *, call: Call, namespace: str, here: bool) -> Wish:
    """What was asked for, with what goes without saying; `here` is this machine, where nothing is pulled."""
    command, image = asked["command"], asked["image"]
    if here and image:
        raise WishError("nothing is pulled here: programs run on this machine", where="--image", remedy="leave it out")
    if not here and not image:
        raise WishError("a cluster's pod needs an image", where="aliquot run", remedy="name it with --image")
    if here and not command:
        raise click.UsageError("no program is named: write it after --")
    environment = passed_on(os.environ, said=asked["said"], by_default=here)
    folder = str(Path(asked["workdir"] or ".").absolute()) if here else asked["workdir"]
    if here:
        _check_program(command[0], folder=folder, path=environment.get("PATH", os.defpath))
    neither = asked["compute"] is None and asked["memory"] is None
    tail = "".join(random.choices(_LETTERS, k=_TAIL))  # noqa: S311 - tells names apart, guards nothing
    return Wish(
        command=command,
        name=asked["name"] or name_for(command, image=image, tail=tail),
        namespace=asked["namespace"] or namespace,
        compute=call.sources.resolve("run", RunSettings).value.compute if neither else asked["compute"],
        memory=asked["memory"],
        gpus=asked["gpus"],
        queue=asked["queue"],
        model=asked["model"],
        priority_class=asked["priority_class"],
        image=image,
        folder=folder,
        environment=environment,
        labels=_whose(call) if here else {},
    )


def _whose(call: Call) -> dict[str, str]:
    """Among people who share a machine, the pod is of who runs it, if queues tell people apart by a label."""
    label = call.sources.resolve("queues", QueueSettings).value.user_label
    if not label:
        return {}
    import getpass  # it brings the terminal's settings along, for a name

    return {label: getpass.getuser()}


def _check_program(program: str, *, folder: str, path: str) -> None:
    """A pod whose program is missing is tried again for ever: here it can be seen before."""
    if not Path(folder).is_dir():
        raise WishError("there is no such folder", where=folder, remedy="check --workdir")
    if shutil.which(program, path=path) is None and not (Path(folder) / program).is_file():
        raise WishError("there is no such program", where=program, remedy="check its name and PATH")


async def _tell_places(uid: str, *, tell: Callable[[str], None], connection: Connection, call: Call) -> None:
    # With numpy and all of the centre: only whoever waits pays for it.
    from aliquot_cli.waiting_place import tell_places

    await tell_places(
        uid,
        connection=connection,
        call=call,
        clock=SystemClock(),
        random=random.random,
        tell=tell,
    )
