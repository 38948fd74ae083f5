"""`aliquot completion`: what a shell needs to complete this command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from aliquot_cli.handing_out import hand_out

SHELLS = ("bash", "zsh", "fish")
_PROGRAM = "aliquot"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the lines that let a shell complete commands, options, and names of pods and queues.

    \b
    Examples:
      aliquot completion bash > ~/.local/share/bash-completion/completions/aliquot
      aliquot completion zsh > "${fpath[1]}/_aliquot"
      aliquot completion fish > ~/.config/fish/completions/aliquot.fish
    """
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"click knows no {shell}")
    root = click.get_current_context().find_root().command
    hand_out(made(cli=root, ctx_args={}, prog_name=_PROGRAM, complete_var="_ALIQUOT_COMPLETE").source())
