"""Scorers other than numeric, how they are found, and what becomes of answers that none can score."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.errors import TokenwattError, UsageError
from pytest_tokenwatt.quality.scorers import BUILT_IN, find_scorer
from pytest_tokenwatt.quality.scoring import Scorer, outcome_of
from pytest_tokenwatt.records.accuracy import Answer, Outcome, Scored, SuiteItem

CORRECT, WRONG, UNPARSEABLE, TRUNCATED, FAILED = Outcome
CITIES = ("Rome", "Paris", "New York", "York")


def item(gold: str, choices: tuple[str, ...] = ()) -> SuiteItem:
    return SuiteItem("item", gold, choices=choices)


def outcome(scorer: str, gold: str, text: str, *, choices: tuple[str, ...] = (), cut: bool = False) -> Outcome:
    answer = Answer(text, "length" if cut else "stop")
    return outcome_of(find_scorer(scorer), item(gold, choices), answer).outcome


class Loud:
    """A scorer as others may write one: right is what is shouted."""

    name = "loud"

    def check_gold(self, item: SuiteItem) -> str | None:
        return None

    def score(self, item: SuiteItem, text: str, *, cut: bool) -> Scored:
        if "crash" in text:
            raise ZeroDivisionError("division by zero")
        if "true" in text:
            return True  # type: ignore[return-value]
        return Scored(CORRECT if text.isupper() else WRONG, text)


def test_scorers_are_found_by_name() -> None:
    assert {name: find_scorer(name).name for name in BUILT_IN} == {name: name for name in BUILT_IN}
    assert sorted(BUILT_IN) == ["choice", "contains", "exact", "numeric", "regex"]


def test_others_bring_their_own() -> None:
    loud: Scorer = Loud()
    found = find_scorer("loud", {"loud": loud, "exact": loud})
    assert outcome_of(found, item("x"), Answer("YES")).outcome is CORRECT
    assert find_scorer("exact", {"exact": loud}) is not loud


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="no scorer 'numeri'; did you mean numeric"):
        find_scorer("numeri")
    with pytest.raises(UsageError, match="did you mean loud"):
        find_scorer("lout", {"loud": Loud()})
    with pytest.raises(UsageError, match="known: choice, contains"):
        find_scorer("zzz")


def test_a_scorer_that_fails_is_named_with_the_item() -> None:
    with pytest.raises(TokenwattError, match="scorer loud failed on item item: ZeroDivisionError"):
        outcome_of(Loud(), item("x"), Answer("crash"))
    with pytest.raises(
        TokenwattError, match="scorer loud gave True for item item, which is no Scored; mend the scorer"
    ):
        outcome_of(Loud(), item("x"), Answer("true"))


@pytest.mark.parametrize(
    ("answer", "expected", "detail"),
    [
        (Answer(None, error="HTTP 500"), FAILED, "HTTP 500"),
        (Answer(None), FAILED, "no text"),
        (Answer("42", error="stream cut"), FAILED, "stream cut"),
        (Answer(None, "stop", reasoning_only=True), UNPARSEABLE, "only reasoning"),
        (Answer("", "length", reasoning_only=True), TRUNCATED, "only reasoning"),
        (Answer("", "stop"), UNPARSEABLE, "empty"),
        (Answer(" \n", "length"), TRUNCATED, "empty"),
        (Answer("\n\nQuestion: 42", "length"), UNPARSEABLE, "empty"),
        (Answer("<think>42", "stop"), TRUNCATED, "reasoning did not end"),
        (Answer("so 42", "length"), TRUNCATED, "max_tokens"),
        (Answer("so 42", "max_tokens"), TRUNCATED, "max_tokens"),
        (Answer("so 42", None), CORRECT, ""),
        (Answer("so 42", None, output_tokens=8), TRUNCATED, "max_tokens"),
        (Answer("so 42", None, output_tokens=7), CORRECT, ""),
        (Answer("so 42", "stop", output_tokens=8), CORRECT, ""),
    ],
)
def test_outcomes_that_no_scorer_decides(answer: Answer, expected: Outcome, detail: str) -> None:
    found = outcome_of(find_scorer("numeric"), item("42"), answer, max_tokens=8)
    assert found.outcome is expected
    assert detail in found.detail


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>no</think>YES", CORRECT),
        ("<thinking>a</thinking><think>b</think>YES", CORRECT),
        ("no </think>YES", CORRECT),
        ("YES<think>no</think>", CORRECT),
        ("[THINK]no[/THINK]YES", CORRECT),
        ("<|channel|>analysis<|message|>no<|end|><|start|>assistant<|channel|>final<|message|>YES<|return|>", CORRECT),
        ("YES\nQuestion: no", CORRECT),
        ("YES\n### Question 2: no", CORRECT),
        ("YES\n**Question:** no", CORRECT),
        ("YES </s> no", CORRECT),
        ("YES END no", CORRECT),
        ("YES\nMORE no", CORRECT),
        ("YES or MORE? no", WRONG),
        ("YES to the question: no", WRONG),
    ],
)
def test_the_scorer_sees_the_answer_alone(text: str, expected: Outcome) -> None:
    stops = (" END", "MORE", "")
    assert outcome_of(Loud(), item("x"), Answer(text), stops=stops).outcome is expected


def test_a_stop_within_reasoning_cuts_nothing() -> None:
    answer = Answer("<think>the\nQuestion: is hard</think>The answer is 42")
    assert outcome_of(find_scorer("numeric"), item("42"), answer, stops=("Question",)).outcome is CORRECT


@pytest.mark.parametrize(
    ("text", "cut", "expected"),
    [
        ("Paris", False, CORRECT),
        ("  Paris\n", False, CORRECT),
        ("paris", False, WRONG),
        ("Paris.", False, WRONG),
        ("Paris", True, CORRECT),
        ("Par", True, TRUNCATED),
        ("Paris\n\nQuestion: And Italy?", True, CORRECT),
    ],
)
def test_exact(text: str, cut: bool, expected: Outcome) -> None:
    assert outcome("exact", "Paris", text, cut=cut) is expected


@pytest.mark.parametrize(
    ("gold", "text", "cut", "expected"),
    [
        ("Paris", "It is PARIS, I think", False, CORRECT),
        ("Paris", "Parisian", False, WRONG),
        ("12", "112 or 120", False, WRONG),
        ("12", "12km", False, WRONG),
        ("12", "12, surely", True, CORRECT),
        ("Paris", "It is", True, TRUNCATED),
        ("New  York", "in new\nyork", False, CORRECT),
        ("北京", "答案是北京市", False, CORRECT),
        ("(x+1)", "y = (x+1)2", False, CORRECT),
    ],
)
def test_contains(gold: str, text: str, cut: bool, expected: Outcome) -> None:
    assert outcome("contains", gold, text, cut=cut) is expected


@pytest.mark.parametrize(
    ("gold", "text", "cut", "expected"),
    [
        (r"\bParis\b", "It is Paris.", False, CORRECT),
        (r"(?i)paris|lutetia", "LUTETIA", False, CORRECT),
        (r"\d+\s*km", "It is 12 km.", True, CORRECT),
        (r"\d+\s*km", "It is 12 miles.", False, WRONG),
        (r"\d+\s*km", "It is 12", True, TRUNCATED),
        (r"^yes", "yes and no", False, CORRECT),
        (r"end$", "x" * 50_000 + "end", False, CORRECT),
    ],
)
def test_regex(gold: str, text: str, cut: bool, expected: Outcome) -> None:
    assert outcome("regex", gold, text, cut=cut) is expected


@pytest.mark.parametrize(
    "gold",
    [
        r"Paris",
        r"-?\d+(,\d{3})*",
        r"(?:\$|USD)?\s*29(\.00)?",
        r"\s*\d+\s*km\s*",
        r"(?i)the capital is .* paris",
        r"[]a]+b",
        r"\(a\)\+",
        r"(ab){3}",
        r"(?P<year>19|20)\d\d",
    ],
)
def test_patterns_that_are_safe(gold: str) -> None:
    assert find_scorer("regex").check_gold(item(gold)) is None


@pytest.mark.parametrize(
    ("gold", "why"),
    [
        (r"(a+)+b", "repeats what itself varies"),
        (r"(a|aa)+b", "repeats what itself varies"),
        (r"((a{1,5}){1,5}){1,5}", "repeats what itself varies"),
        (r"(?:a?){30}a{30}", "repeats what itself varies"),
        (r".*.*.*x", "can match the same text"),
        (r"a.*b.*c", "can match the same text"),
        (r"\w+\d+!", "can match the same text"),
        (r"x*(?:y+)?x*z", "can match the same text"),
        (r"a{1,500}b{1,500}c", "too many ways"),
        (r"(a)\1", "refer back"),
        (r"(?=a)b", "look around"),
        (r"(", "no regular expression"),
        (r"[[a]", "no regular expression"),
        (r"a*", "matches an empty answer"),
        (r"", "matches an empty answer"),
        (r"a" * 500, "at most 400"),
    ],
)
def test_patterns_that_are_refused(gold: str, why: str) -> None:
    assert why in str(find_scorer("regex").check_gold(item(gold)))
    if "empty" not in why:
        assert outcome("regex", gold, "a" * 5000) is UNPARSEABLE


@given(st.lists(st.sampled_from(["a", "b", "\\d", ".", "(", ")", "(?:", "|", "*", "+", "?", "{2,9}", "x"]), max_size=9))
def test_a_pattern_that_is_taken_is_quick(parts: list[str]) -> None:
    scorer, gold = find_scorer("regex"), item("".join(parts))
    if scorer.check_gold(gold) is None:
        start = time.process_time()
        for text in ("a" * 5000, "ab" * 2500, "1" * 5000):
            scorer.score(gold, text, cut=False)
        assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B", CORRECT),
        ("b", CORRECT),
        (" (B)", CORRECT),
        ("B. Paris", CORRECT),
        ("B) because it is", CORRECT),
        ("**B**", CORRECT),
        ("The answer is (B).", CORRECT),
        ("The answer is B because A is wrong", CORRECT),
        ("The correct answer is option B", CORRECT),
        ("Answer: b)", CORRECT),
        ("**Answer:** B", CORRECT),
        (r"$\boxed{B}$", CORRECT),
        (r"\boxed{\text{(B)}}", CORRECT),
        ("#### B", CORRECT),
        ("The answer is A. No: the answer is B.", CORRECT),
        ("(A) is in Italy, so I take (B)", CORRECT),
        ("Paris", CORRECT),
        ("I think it is Paris.", CORRECT),
        ("A good question. It is Paris", CORRECT),
        ("The answer is a matter of taste: Paris", CORRECT),
        ("<think>A or C</think>B", CORRECT),
        ("C", WRONG),
        ("The answer is (D)", WRONG),
        ("New York", WRONG),
        ("Rome or Paris", UNPARSEABLE),
        ("A) Rome\nB) Paris\nC) New York", UNPARSEABLE),
        ("E", UNPARSEABLE),
        ("I do not know", UNPARSEABLE),
    ],
)
def test_choice(text: str, expected: Outcome) -> None:
    assert outcome("choice", "B", text, choices=CITIES) is expected
    assert outcome("choice", "Paris", text, choices=CITIES) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B", CORRECT),
        (" B.", CORRECT),
        ("B. Par", CORRECT),
        ("The answer is B, as", CORRECT),
        ("I think Paris", TRUNCATED),
    ],
)
def test_a_cut_choice_needs_its_letter(text: str, expected: Outcome) -> None:
    assert outcome("choice", "B", text, choices=CITIES, cut=True) is expected


def test_a_choice_without_options_is_a_letter() -> None:
    assert outcome("choice", "G", "The answer is G.") is CORRECT
    assert find_scorer("choice").check_gold(item("G")) is None


@pytest.mark.parametrize(
    ("gold", "choices", "why"),
    [
        ("E", CITIES, "one of A to D"),
        ("1", CITIES, "names no choice"),
        ("", CITIES, "names no choice"),
        ("Berlin", CITIES, "names no choice"),
        ("42", (), "give a letter"),
        ("A", ("Rome",), "1 choices"),
        ("A", ("Rome", "rome"), "distinct"),
        ("A", tuple(map(str, range(27))), "27 choices"),
    ],
)
def test_a_gold_names_one_option(gold: str, choices: tuple[str, ...], why: str) -> None:
    assert why in str(find_scorer("choice").check_gold(item(gold, choices)))


@pytest.mark.parametrize("scorer", ["exact", "contains"])
def test_a_blank_gold_is_refused(scorer: str) -> None:
    assert "blank" in str(find_scorer(scorer).check_gold(item("  ")))
    assert find_scorer(scorer).check_gold(item("x")) is None


FRAGMENTS = [
    "answer is ",
    "Answer:",
    "####",
    "\\boxed{",
    "}",
    "(B)",
    "**",
    "12",
    "/",
    "<think>",
    "</think>",
    "\n",
    "Q:",
]


@given(st.text() | st.lists(st.sampled_from(FRAGMENTS)).map("".join), st.sampled_from(sorted(BUILT_IN)), st.booleans())
def test_no_text_raises_and_none_is_failed(text: str, name: str, cut: bool) -> None:
    scorer = find_scorer(name)
    for gold in (item("B", CITIES), item(text)):
        scorer.check_gold(gold)
        assert outcome_of(scorer, gold, Answer(text, "length" if cut else "stop")).outcome is not FAILED


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@pytest.mark.parametrize(
    "unit", ["a", "1 ", "(B) ", "answer is a ", "\n", "<think>", "\u0315\u0300", "12 km ", "Paris "]
)
def test_an_answer_of_100_kb_costs_milliseconds(name: str, unit: str) -> None:
    gold = item(r"\d+\s*miles" if name == "regex" else "B", CITIES)
    answer = Answer((unit * 100_000)[:100_000], "stop")
    start = time.process_time()
    outcome_of(find_scorer(name), gold, answer)
    assert time.process_time() - start < 0.5
