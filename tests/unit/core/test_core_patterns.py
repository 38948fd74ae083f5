"""Lists of what is allowed and what is forbidden."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.inventory import Gpu
from aliquot_core.patterns import LONGEST, MOST, PatternError, Patterns, parse_patterns

A100, PCIE, H100, T4 = "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA H100 80GB HBM3", "Tesla T4"
MODELS = (A100, PCIE, H100, T4)

ROWS = [
    ("", MODELS),
    ("  ", MODELS),
    ("*", MODELS),
    ("A100*", (A100, PCIE)),
    ("a100*", (A100, PCIE)),
    ("A100-SXM4-80GB", (A100,)),
    ("NVIDIA A100-SXM4-80GB", (A100,)),
    ("NVIDIA-A100-SXM4-80GB", (A100,)),
    ("NVIDIA-A100-80GB-PCIe", (PCIE,)),
    ("A100 80GB PCIe", (PCIE,)),
    ("A100", ()),
    ("*A100*", (A100, PCIE)),
    ("A100*,H100*", (A100, PCIE, H100)),
    (" A100* , H100* ", (A100, PCIE, H100)),
    ("!A100*", (H100, T4)),
    ("!NVIDIA*", (T4,)),
    ("! A100*", (H100, T4)),
    ("A100*,!*PCIe", (A100,)),
    ("!*PCIe,A100*", (A100,)),
    ("!*", ()),
    ("*,!*", ()),
    ("[AH]100*", (A100, PCIE, H100)),
    ("[!A]100*", (H100,)),
    ("Tesla-T?", (T4,)),
    ("[", ()),
]


@pytest.mark.parametrize(("text", "admitted"), ROWS)
def test_a_model_passes_by_any_of_its_names(text: str, admitted: tuple[str, ...]) -> None:
    """As the driver, the node's label or people write it; what is forbidden wins, case does not count."""
    patterns = parse_patterns(text, where="here")
    gpus = [Gpu(uuid=model, index=0, model=model, memory=1) for model in MODELS]
    assert tuple(gpu.model for gpu in gpus if patterns.admits(*gpu.model_names)) == admitted


@pytest.mark.parametrize("text", [",", "A100*,", ",A100*", "A,,B", "!", "A,!", "! ", "!!A", "! !A", "!!"])
def test_a_list_that_says_nothing_somewhere_is_refused(text: str) -> None:
    """A forgotten word would allow or forbid something else than was meant."""
    with pytest.raises(PatternError) as caught:
        parse_patterns(text, where="here")
    assert caught.value.where == "here"
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["A100\0", "A100,!\x1b[31mH100", "A\nB"])
def test_a_character_that_is_in_no_name_is_refused(text: str) -> None:
    """It would be waited for for ever; blanks and new lines around a word are none of it."""
    with pytest.raises(PatternError, match="in no name"):
        parse_patterns(text, where="here")
    assert parse_patterns("A100,\n\tH100\n", where="here").allowed == ("a100", "h100")


def test_a_list_may_be_long_but_not_endless() -> None:
    """The limit itself passes."""
    assert parse_patterns("a" * LONGEST, where="here").allowed == ("a" * LONGEST,)
    with pytest.raises(PatternError, match="4097 characters"):
        parse_patterns("a" * (LONGEST + 1), where="here")


@pytest.mark.parametrize("sign", ["", "!"])
def test_a_list_has_few_patterns(sign: str) -> None:
    """Each is asked of every GPU; allowed or forbidden, the limit itself passes."""
    words = [f"{sign}GPU-{number}*" for number in range(MOST + 1)]
    found = parse_patterns(",".join(words[:MOST]), where="here")
    assert len(found.allowed + found.forbidden) == MOST
    with pytest.raises(PatternError, match="65 patterns are more than 64") as caught:
        parse_patterns(",".join(words), where="here")
    assert caught.value.where == "here"
    assert caught.value.remedy


class Name(str):
    """Counts how often it is compared with others, or made ready for it."""

    __slots__ = ()
    looks = 0

    def casefold(self) -> str:
        """As it is: it is small already."""
        Name.looks += 1
        return self

    def __eq__(self, other: object) -> bool:
        Name.looks += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_plain_names_are_looked_up_and_not_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of 64 uuids costs of each GPU what a list of one does."""
    patterns = parse_patterns(",".join(f"GPU-{number:04}" for number in range(MOST)), where="here")
    monkeypatch.setattr(Name, "looks", 0)
    assert [patterns.admits(Name(f"gpu-{number:04}")) for number in (0, 63, 64, 999)] == [True, True, False, False]
    # Each is folded once, and the two that are there are found equal to one.
    assert Name.looks <= 8


@pytest.mark.parametrize("text", ["*a" * 2_000 + "b", ",".join(["*a" * 30 + "b"] * MOST)])
def test_a_pattern_made_to_be_slow_is_not(text: str) -> None:
    """A user's pattern runs in the scheduler for every GPU."""
    patterns = parse_patterns(text, where="here")
    # Of this process alone: a busy machine has nothing to do with it, and one that goes astray takes years.
    start = time.process_time()
    assert not patterns.admits("a" * 80)
    assert time.process_time() - start < 20.0


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_list_admits_or_refuses_any_name(text: str, name: str) -> None:
    """No text breaks the matching."""
    try:
        patterns = parse_patterns(text, where="here")
    except PatternError:
        patterns = Patterns()
    assert patterns.admits(name) in {True, False}


@given(
    st.lists(st.sampled_from(["a*", "b*", "!a*", "!b*", "*c", "!*c"]), min_size=1), st.sampled_from(["ac", "b", "x"])
)
def test_order_and_repetition_do_not_count(words: list[str], name: str) -> None:
    """The list is two sets."""
    forward = parse_patterns(",".join(words), where="here").admits(name)
    assert forward == parse_patterns(",".join(reversed(words * 2)), where="here").admits(name)
