"""What commands print on standard output, which may be a full disk."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

import click

from aliquot_core.errors import UserError


class OutputError(UserError):
    """What came of a command that could not be written down."""


def hand_out(result: str) -> None:
    """Print it whole, or say that it could not be; who closed the pipe knows that already."""
    check_open()
    with written_down():
        click.echo(result)


def check_open() -> None:
    """Say it if whoever called us has closed standard output (`>&-`), where Python would print into nothing."""
    if sys.stdout is None:
        raise OutputError("it is closed", where="standard output", remedy="send it to another place")


def standard_output() -> BinaryIO:
    """Where results go, byte for byte."""
    check_open()
    return sys.stdout.buffer


@contextlib.contextmanager
def written_down() -> Iterator[None]:
    """Say of what is printed here that it could not be, if so."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        _forget()
        failed = f"the result can't be written: {error.strerror or error}"
        raise OutputError(failed, where="standard output", remedy="send it to another place") from None


def _forget() -> None:
    """What is still held back would be tried again when the process ends, and fail with a traceback."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
