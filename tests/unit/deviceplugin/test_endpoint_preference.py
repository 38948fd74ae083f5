"""Which ids the endpoint advises when it must choose alone, and which advice of the agent's it passes on."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.door import Prefer
from aliquot_deviceplugin.endpoint.preference import acceptable, choose_alone, gpu_of


def asked(*, available: list[str], must: list[str] | None = None, size: int) -> Prefer:
    """A question of the kubelet's."""
    return Prefer(call=1, resource="aliquot.dev/compute", available=available, must_include=must or [], size=size)


def ids(gpu: str, count: int) -> list[str]:
    """The first ids of a GPU."""
    return [f"{gpu}-{number:02}" for number in range(count)]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        pytest.param(asked(available=ids("a", 30) + ids("b", 40), size=35), {"b": 35}, id="the only GPU it fits on"),
        pytest.param(asked(available=ids("a", 100) + ids("b", 40), size=35), {"b": 35}, id="the tightest GPU"),
        pytest.param(
            asked(available=ids("a", 10) + ids("b", 100) + ids("c", 60), size=150), {"b": 100, "c": 50}, id="two"
        ),
        pytest.param(
            asked(available=ids("a", 50) + ids("b", 100), must=ids("a", 1), size=20),
            {"a": 20},
            id="beside what must be in",
        ),
        pytest.param(asked(available=ids("a", 5), must=ids("a", 5), size=5), {"a": 5}, id="nothing to choose"),
        pytest.param(asked(available=ids("a", 3), size=9), {"a": 3}, id="too few: all there are"),
        pytest.param(asked(available=[], size=3), {}, id="none"),
    ],
)
def test_choice(question: Prefer, expected: dict[str, int]) -> None:
    """The choice touches the GPUs that the table says, with so many ids each."""
    assert Counter(map(gpu_of, choose_alone(question))) == expected


def test_ids_in_the_order_people_count() -> None:
    """Id 9 comes before id 10."""
    assert choose_alone(asked(available=["a-10", "a-9", "a-1"], size=2)) == ["a-1", "a-9"]


device_ids = st.builds(lambda gpu, number: f"{gpu}-{number}", st.sampled_from("abcd"), st.integers(0, 20))
questions = st.builds(
    lambda available, must, size: asked(available=sorted(available | must), must=sorted(must), size=size + len(must)),
    st.sets(device_ids),
    st.sets(device_ids, max_size=5),
    st.integers(0, 30),
)


@given(questions)
def test_a_choice_is_always_usable(question: Prefer) -> None:
    """What we choose is what we would take from the agent, as far as there are ids enough."""
    enough = min(question.size, len(question.available))

    assert acceptable(choose_alone(question), asked=asked_for(question, enough))


@given(questions)
def test_no_choice_touches_fewer_gpus(question: Prefer) -> None:
    """Beyond the GPUs that must be in, no fewer would do."""
    must = set(question.must_include)
    touched = {gpu_of(device) for device in must}
    free = Counter(gpu_of(device) for device in set(question.available) - must)
    needed = question.size - len(must) - sum(free[gpu] for gpu in touched)
    others = sorted((count for gpu, count in free.items() if gpu not in touched), reverse=True)
    fewest = next((n for n in range(len(others) + 1) if sum(others[:n]) >= needed), len(others))

    assert len({gpu_of(device) for device in choose_alone(question)} - touched) == fewest


@given(questions, st.randoms(use_true_random=False))
def test_order_of_the_question_does_not_matter(question: Prefer, random: Random) -> None:
    """The kubelet's order is random; the answer is not."""
    shuffled = list(question.available)
    random.shuffle(shuffled)

    assert choose_alone(asked(available=shuffled, must=question.must_include, size=question.size)) == choose_alone(
        question
    )


def asked_for(question: Prefer, size: int) -> Prefer:
    """The same question about another number."""
    return asked(available=question.available, must=question.must_include, size=size)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (["a-00"], "too few"),
        (["a-00", "a-01", "a-02"], "too many"),
        (["a-00", "a-00"], "one twice"),
        (["a-00", "z-00"], "not available"),
        (["a-01", "a-02"], "without what must be in"),
        ([], "no answer"),
    ],
)
def test_useless_advice(answer: list[str], why: str) -> None:
    """Advice that the kubelet could not follow to the letter is not passed on."""
    question = asked(available=ids("a", 9), must=["a-00"], size=2)

    assert not acceptable(answer, asked=question), why
    assert acceptable(["a-00", "a-05"], asked=question)
