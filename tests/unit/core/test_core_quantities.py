"""Numbers as people and Kubernetes write them; a percent never meets a MiB."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.quantities import LARGEST, MEBIBYTES, Amount, MiB, Percent, QuantityError, parse_count

READ = [
    ("1", 1),
    (1, 1),
    (30.0, 30),
    ("8000", 8_000),
    ("8k", 8_000),
    ("1M", 1_000_000),
    ("1e3", 1_000),
    ("1E3", 1_000),
    ("1.5e3", 1_500),
    ("1e+2", 100),
    ("100e-2", 1),
    ("1.5k", 1_500),
    ("0.008M", 8_000),
    ("2000m", 2),
    ("3000000u", 3),
    ("4000000000n", 4),
    ("0.0001G", 100_000),
    ("+8", 8),
    ("007", 7),
    ("8.", 8),
    ("8.000", 8),
    (" 8 ", 8),
    (str(LARGEST), LARGEST),
]


@pytest.mark.parametrize(("text", "count"), READ)
def test_a_whole_number_is_read_however_it_is_written(text: str | float, count: int) -> None:
    """Kubernetes hands 8000 back as `8k`; exponents, suffixes and fractions that come out whole count the same."""
    assert parse_count(text, where="here", unit=MEBIBYTES) == count


REFUSED = [
    # text, unit, what is wrong, what to write
    ("0", "percent", "0 is less than 1", "write at least 1, or leave it out"),
    ("-0", "percent", "-0 is less than 1", "leave it out"),
    ("-5", "percent", "-5 is less than 1", "leave it out"),
    (-5, "percent", "-5 is less than 1", "leave it out"),
    ("-8k", "MiB", "-8k is less than 1", "leave it out"),
    ("0.5", "percent", "0.5 is not a whole number", "write whole percent"),
    (0.5, "percent", "0.5 is not a whole number", "write whole percent"),
    ("1500m", "percent", "1500m is not a whole number", "write whole percent"),
    ("1u", "percent", "1u is not a whole number", "write whole percent"),
    ("1e-999", "percent", "1e-999 is not a whole number", "write whole percent"),
    ("1.00000000000000000000000000001", "MiB", "is not a whole number", "write whole MiB"),
    ("8Gi", "MiB", "8Gi has a unit of its own, but the number counts MiB already", "write 8192 for 8Gi"),
    ("8192Mi", "MiB", "has a unit of its own", "write 8192 for 8192Mi"),
    ("1Ti", "MiB", "has a unit of its own", "write 1048576 for 1Ti"),
    ("2048Ki", "MiB", "has a unit of its own", "write 2 for 2048Ki"),
    ("2049Ki", "MiB", "has a unit of its own", "write 3 for 2049Ki"),
    ("1.5Gi", "MiB", "has a unit of its own", "write 1536 for 1.5Gi"),
    ("1e1Gi", "MiB", "has a unit of its own", "write 10240 for 1e1Gi"),
    ("-8Gi", "MiB", "has a unit of its own", "write whole MiB in digits"),
    ("0Gi", "MiB", "has a unit of its own", "write whole MiB in digits"),
    ("1e999Gi", "MiB", "has a unit of its own", "write whole MiB in digits"),
    ("8Ei", "MiB", "has a unit of its own", "write whole MiB in digits"),
    ("50Gi", "percent", "has a unit of its own, but the number counts percent", "write whole percent in digits"),
    ("8G", "MiB", "8G is more than any machine has", "write 7630 if 8G counts bytes, or 8192 if it means 8Gi"),
    ("8192M", "MiB", "is more than any machine has", "write 7813 if 8192M counts bytes, or 8192 if it means 8192Mi"),
    ("1.5G", "MiB", "is more than any machine has", "write 1431 if 1.5G counts bytes, or 1536 if it means 1.5Gi"),
    ("8589934592", "MiB", "is more than any machine has", "write 8192 if 8589934592 counts bytes"),
    ("1e999", "MiB", "is more than any machine has", "write the number of MiB"),
    ("1E", "percent", "1E is more than any machine has", "write the number of percent"),
    (str(LARGEST + 1), "GPUs", "is more than any machine has", "write the number of GPUs"),
    ("", "MiB", "'' is not a number", "write whole MiB in digits"),
    ("Gi", "MiB", "'Gi' is not a number", "write whole MiB in digits"),
    (".", "MiB", "'.' is not a number", "write whole MiB in digits"),
    ("+", "MiB", "'+' is not a number", "write whole MiB in digits"),
    ("NaN", "MiB", "'NaN' is not a number", "write whole MiB in digits"),
    ("nan", "MiB", "'nan' is not a number", "write whole MiB in digits"),
    (float("nan"), "MiB", "'nan' is not a number", "write whole MiB in digits"),
    ("inf", "MiB", "'inf' is not a number", "write whole MiB in digits"),
    ("-Infinity", "MiB", "is not a number", "write whole MiB in digits"),
    (float("inf"), "MiB", "'inf' is not a number", "write whole MiB in digits"),
    (True, "MiB", "'True' is not a number", "write whole MiB in digits"),
    ("8K", "MiB", "'8K' is not a number", "write whole MiB in digits"),
    ("8 k", "MiB", "'8 k' is not a number", "write whole MiB in digits"),
    ("8 000", "MiB", "'8 000' is not a number", "write whole MiB in digits"),
    ("8,000", "MiB", "'8,000' is not a number", "write whole MiB in digits"),
    ("8_000", "MiB", "'8_000' is not a number", "write whole MiB in digits"),
    ("1/2", "MiB", "'1/2' is not a number", "write whole MiB in digits"),
    ("0x10", "MiB", "'0x10' is not a number", "write whole MiB in digits"),
    ("50%", "percent", "'50%' is not a number", "write whole percent in digits"),
    ("1e", "MiB", "'1e' is not a number", "write whole MiB in digits"),
    ("1e1000", "MiB", "'1e1000' is not a number", "write whole MiB in digits"),
    ("8MB", "MiB", "'8MB' is not a number", "write whole MiB in digits"),
    ("8MiB", "MiB", "'8MiB' is not a number", "write whole MiB in digits"),
    ("\u0668", "MiB", "is not a number", "write whole MiB in digits"),
    ("\uff18", "MiB", "is not a number", "write whole MiB in digits"),
    ("²", "MiB", "is not a number", "write whole MiB in digits"),
    ("8\n8", "MiB", "is not a number", "write whole MiB in digits"),
    ("9" * 5_000, "MiB", "is not a number", "write whole MiB in digits"),
]


@pytest.mark.parametrize(("text", "unit", "wrong", "advice"), REFUSED)
def test_what_cannot_be_meant_is_refused_with_what_to_write(
    text: str | float, unit: str, wrong: str, advice: str
) -> None:
    """Place, value and remedy are in the error, and it stays short whatever was written."""
    with pytest.raises(QuantityError) as caught:
        parse_count(text, where="container main", unit=unit)
    error = caught.value
    assert error.where == "container main"
    assert wrong in error.what
    assert advice in error.remedy
    assert len(str(error)) < 250


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("8192M", "write 7813 if 8192M counts bytes, or 8192 if it means 8192Mi"),
        ("8589934592", "write 8192 if 8589934592 counts bytes"),
        ("280T", "write 267028809 if 280T counts bytes"),
    ],
)
def test_what_may_be_mib_is_advised_only_where_a_machine_can_have_it(text: str, remedy: str) -> None:
    """And only of what has a suffix that has a binary twin."""
    with pytest.raises(QuantityError) as caught:
        parse_count(text, where="container main", unit="MiB")
    assert caught.value.remedy == remedy


POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6}


@given(
    digits=st.integers(min_value=0, max_value=10**12),
    point=st.integers(min_value=0, max_value=12),
    suffix=st.sampled_from(sorted(POWERS)),
)
def test_every_way_to_write_a_number_means_that_number(digits: int, point: int, suffix: str) -> None:
    """Against exact fractions: what is whole and in range is read as it is, everything else is refused."""
    text = f"{digits:013d}"
    text = (f"{text[:-point]}.{text[-point:]}" if point else text) + suffix
    meant = Fraction(digits, 10**point) * Fraction(10) ** POWERS[suffix]
    if meant.denominator == 1 and 1 <= meant <= LARGEST:
        assert parse_count(text, where="x", unit="MiB") == meant
    else:
        with pytest.raises(QuantityError):
            parse_count(text, where="x", unit="MiB")


@given(st.text(max_size=60))
def test_no_text_does_anything_but_a_number_or_a_refusal(text: str) -> None:
    """Whatever a user writes comes out as a count in range or as a UserError."""
    try:
        count = parse_count(text, where="x", unit="MiB")
    except QuantityError as error:
        assert error.remedy  # noqa: PT017 - either of the two ends is right
    else:
        assert 1 <= count <= LARGEST


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.lt, operator.le, operator.gt, operator.ge])
@pytest.mark.parametrize("other", [MiB(1), 1, 1.0, Amount(1)], ids=repr)
def test_percent_meets_nothing_but_percent(operation: Callable[[object, object], object], other: object) -> None:
    """Neither sum nor order exists between a percent and anything else, on either side."""
    with pytest.raises(TypeError):
        operation(Percent(1), other)
    with pytest.raises(TypeError):
        operation(other, Percent(1))


def test_amounts_of_one_kind_add_compare_and_print() -> None:
    """The kind survives arithmetic; equal numbers of different kinds are not equal."""
    assert Percent(30) + Percent(20) == Percent(50)
    assert type(MiB(3) - MiB(5)) is MiB
    assert MiB(3) - MiB(5) == MiB(-2)
    assert max(Percent(3), Percent(20)) == Percent(20)
    assert not operator.eq(Percent(1), MiB(1))
    assert (bool(MiB(0)), bool(MiB(1))) == (False, True)
    assert (str(Percent(30)), str(MiB(8_000))) == ("30 %", "8000 MiB")
