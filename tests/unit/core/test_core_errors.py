"""Every error says what, where and what to do, and whose fault it is."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import aliquot_core
from aliquot_core.errors import AliquotError, ClusterError, DefectError, UserError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UserError("8Gi has a unit"), "8Gi has a unit"),
        (UserError("8Gi has a unit", where="container a"), "container a: 8Gi has a unit"),
        (UserError("8Gi has a unit", remedy="write 8192"), "8Gi has a unit; write 8192"),
        (UserError("8Gi has a unit", where="a", remedy="write 8192"), "a: 8Gi has a unit; write 8192"),
    ],
)
def test_an_error_reads_as_one_sentence(error: AliquotError, text: str) -> None:
    """Place first, then what is wrong, then what to do."""
    assert str(error) == text


def test_every_error_of_the_core_says_whose_fault_it_is() -> None:
    """Each class stands below exactly one of the three."""
    for module in pkgutil.iter_modules(aliquot_core.__path__):
        importlib.import_module(f"aliquot_core.{module.name}")
    faults = {UserError: "user", ClusterError: "cluster", DefectError: "aliquot"}
    assert set(AliquotError.__subclasses__()) >= set(faults)
    for root, fault in faults.items():
        below = [error for error in root.__subclasses__() if error.__module__.startswith("aliquot_core")]
        assert below
        assert all(error.fault == fault for error in below)
