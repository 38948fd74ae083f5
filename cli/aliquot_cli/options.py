"""Options that the commands for people share, and what is made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from aliquot_cli.cluster import Place, find_place
from aliquot_cli.sources import gather
from aliquot_core.names import Names
from aliquot_core.settings import Sources
from aliquot_standalone.settings import UpSettings

_Command = TypeVar("_Command", bound=Callable[..., Any])

# `wide` has all columns, where a command leaves some out; `name` is for other commands.
FORMS = ("table", "wide", "json", "yaml", "name")
DATA = ("json", "yaml")


# As Kubernetes has names of pods, queues and namespaces; a path is made of them.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class ObjectName(click.ParamType[str]):
    """A name that an object can bear. An empty one, of a variable that is not set say, would mean all of them."""

    name = "name"

    def __init__(self, *, may_be_left_out: bool = False) -> None:
        self._may_be_left_out = may_be_left_out

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what is no name."""
        if not _NAME.fullmatch(value) and (value or not self._may_be_left_out):
            self.fail(f"{value[:80]!r} is no name: small letters, digits, '-' and '.' only", param, ctx)
        return value


# What `-o name` writes before a pod's name, here as with kubectl.
_KIND = "pod/"


class PodName(click.ParamType[tuple[str, str]]):
    """A pod's name, or NAMESPACE/NAME as tables and messages write it: a namespace, which may be empty, and a name.

    Also as `-o name` writes it, so that commands can be put into each other; a namespace `pod` is named by -n.
    """

    name = "name"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Refuse what is no name."""
        if isinstance(value, tuple):
            return value
        namespace, _, name = value.removeprefix(_KIND).rpartition("/")
        read = ObjectName(may_be_left_out="/" not in value.removeprefix(_KIND))
        return read.convert(namespace, param, ctx), ObjectName().convert(name, param, ctx)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a command asks, and by which settings."""

    place: Place
    sources: Sources
    names: Names


def make_call(*, file: str | None, kubeconfig: str, context: str) -> Call:
    """Read the settings and find the API server."""
    sources = gather(file=file)
    folder = sources.resolve("up", UpSettings).value.folder
    place = find_place(kubeconfig=kubeconfig, context=context, folder=folder)
    return Call(place=place, sources=sources, names=sources.resolve("names", Names).value)


def server_options(command: _Command) -> _Command:
    """Options that say which API server: `file`, `kubeconfig`, `context`."""
    for option in (
        click.option("--context", metavar="NAME", default="", help="The context of the kubeconfig to take."),
        click.option(
            "--kubeconfig",
            metavar="FILE",
            default="",
            help="Where the API server is (default: $KUBECONFIG, the `aliquot up` that runs, as kubectl).",
        ),
        click.option("--config", "file", metavar="FILE", help="Settings file (default: $ALIQUOT_CONFIG)."),
    ):
        command = option(command)
    return command


def form_option(
    *, usual: str | None = FORMS[0], forms: Sequence[str] = FORMS, text: str = "How to print."
) -> Callable[[_Command], _Command]:
    """How to print: `form`; a command that prints more than a table has a `usual` form of another name."""
    choice = click.Choice(tuple(dict.fromkeys([*([usual] if usual else ()), *forms])))
    return click.option("-o", "form", type=choice, default=usual, help=text)


def no_form_option(why: str) -> Callable[[_Command], _Command]:
    """Say where a form would mean nothing what there is instead, to whoever asks for one from habit."""

    def refuse(ctx: click.Context, _: click.Parameter, form: str | None) -> None:
        if form is not None:
            raise click.UsageError(f"-o {form} means nothing here: {why}", ctx=ctx)

    return click.option("-o", "form", hidden=True, expose_value=False, callback=refuse)


def page_option(command: _Command) -> _Command:
    """Where the centre's page is: `page`."""
    text = "The centre's page, which knows what is used, such as http://127.0.0.1:8080 (default: that of `aliquot up`)."
    return click.option("--page", metavar="URL", default="", help=text)(command)


def namespace_options(command: _Command) -> _Command:
    """Which namespaces: `namespace` and `everywhere`."""
    everywhere = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of all namespaces.")
    return namespace_option(everywhere(command))


def namespace_option(command: _Command) -> _Command:
    """Which namespace: `namespace`."""
    help_text = "The pods' namespace (default: that of the kubeconfig's context)."
    kind = ObjectName(may_be_left_out=True)
    return click.option("-n", "--namespace", metavar="NAME", type=kind, default="", help=help_text)(command)
