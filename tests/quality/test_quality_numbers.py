"""The numeric contract: which number of an answer counts, and how it is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_tokenwatt.quality.numbers import spell
from pytest_tokenwatt.quality.scorers import find_scorer
from pytest_tokenwatt.quality.scoring import outcome_of
from pytest_tokenwatt.records.accuracy import Answer, Outcome, Scored, SuiteItem

NUMERIC = find_scorer("numeric")


def scored(gold: str, text: str, finish_reason: str | None = "stop") -> Scored:
    return outcome_of(NUMERIC, SuiteItem("item", gold), Answer(text, finish_reason))


READ = [
    # plain
    ("42", "42"),
    ("42", "42."),
    ("42", "  42\n"),
    ("29", "$29.00"),
    ("29.00", "29"),
    ("0.5", ".5"),
    ("7", "007"),
    ("3.14", "It is about 3.14."),
    ("42", "So there are 40 + 2 = 42 of them."),
    ("42", "Is it 42? It is 42!"),
    # signs
    ("-5", "-5"),
    ("-5", "−5"),
    ("-5", "–5"),
    ("-5", "x = - 5"),
    ("-5", "-$5"),
    ("-5", "$-5"),
    ("-5", "-**5**"),
    ("-5", "The change is (-5)"),
    ("-5", "The answer is negative 5."),
    ("-5", "The answer is minus 5."),
    ("5", "+5"),
    ("5", "10 - 5 = 5"),
    ("5", "- 5 apples"),
    ("15", "20 minus 5 leaves 15"),
    ("5", "1 -> 5"),
    # currency, units, percent
    ("29", "€29"),
    ("29", "29 €"),
    ("29", "USD 29.00"),
    ("500", "Rs. 500"),
    ("12", "12 apples"),
    ("5", "5km"),
    ("5", "5 km/h"),
    ("50", "50 cm^2"),
    ("50", "50 cm²"),
    ("50", "50%"),
    ("50", r"50\%"),
    ("2000000", "2 million"),
    ("-3500", "-$3.5 thousand"),
    # thousands and decimal marks
    ("1234", "1,234"),
    ("1234567.89", "1,234,567.89"),
    ("1234", "1\u2009234"),
    ("1234567", "1\u202f234\u202f567"),
    ("1234567", "1 234 567"),
    ("10000", "10 000 people"),
    ("1234", "1'234"),
    ("1234", "1’234"),
    ("1234", r"1{,}234"),
    ("1234", r"1\,234"),
    ("123456", "1,23,456"),
    ("1234.56", "1.234,56"),
    ("1234567", "1.234.567"),
    ("3.5", "3,5"),
    ("29", "29,00 €"),
    ("100", "3 100"),
    # fractions
    ("0.75", "3/4"),
    ("3/4", "0.75"),
    ("0.75", "3 / 4"),
    ("0.75", r"\frac{3}{4}"),
    ("0.75", r"\dfrac34"),
    ("-0.75", r"-\frac{3}{4}"),
    ("-0.75", r"\frac{-3}{4}"),
    ("1.5", "1 1/2"),
    ("1.5", r"1\frac{1}{2}"),
    ("1.5", "1½"),
    ("0.5", "½"),
    ("1/3", r"$\frac{1}{3}$"),
    # powers of ten
    ("1200", "1.2e3"),
    ("1200", "1.2E+3"),
    ("0.0012", "1.2e-3"),
    ("1200", "1.2 × 10^3"),
    ("1200", "1.2 x 10^3"),
    ("1200", "1.2*10^3"),
    ("1200", "1.2 × 10³"),
    ("0.0012", r"1.2 \times 10^{-3}"),
    ("1200", r"$1.2 \cdot 10^{3}$"),
    ("1000", "10^3"),
    ("8", "2^3"),
    # markup and other scripts
    ("12", "**12**"),
    ("12", "`12`"),
    ("12", "_12_"),
    ("12", "| Total | 12 |"),
    ("12", "$12$"),
    ("12", "１２"),
    ("12", "答案是12个"),
    ("12", "উত্তর ১২"),
    # markers win over what follows
    ("42", "#### 42"),
    ("42", "2 + 40\n#### 42 apples\nThat was step 2."),
    ("42", "####42"),
    ("42", r"\boxed{42}"),
    ("42", r"Thus $\boxed{42\text{ apples}}$, found in 3 steps."),
    ("0.75", r"\boxed{\frac{3}{4}}"),
    ("7", r"\boxed{x = 7}"),
    ("90", r"\boxed{90^\circ}"),
    ("50", r"\boxed{50\text{ cm}^2}"),
    ("1234.5", r"\boxed{\$1{,}234.50}"),
    ("-0.5", r"The final answer is $\boxed{-\frac{1}{2}}$."),
    ("15", "18 - 3 = **$15**."),
    ("1000", "The answer is **$1,000**."),
    ("42", "The answer is 42. I checked it 3 times."),
    ("42", "The answer is 42, because 6 * 7 = 42 and 6 is even; 2 too."),
    ("7", "The answer is 3 + 4 = 7."),
    ("42", "The answer is: **42**\n\nLet me know about the other 5."),
    ("42", "The final answer is\n\n$$42$$\n"),
    ("42", "**Answer:** 42\n\nExplanation: it took 3 steps"),
    ("42", "Final Answer: The total is 42 apples. I used 2 rules."),
    ("43", "The answer is 42. Wait: the answer is 43."),
    ("43", "The answer is not 42, it is 43"),
    ("72", "Answer: She sold 48/2 = 24 in May.\nIn all 48 + 24 = 72."),
    # digits that are no numbers
    ("7", "7 as GPT-4 says"),
    ("7", "7 litres of H2O"),
    ("7", "7, see x2"),
    ("7", "x_{1} = 7 and that is x_1"),
    ("7", "7 comes out in the 2nd step"),
    ("7", "7 of them at 10:30"),
    ("7", "7 on 3/4/2030"),
    ("7", "7 with version 1.2.3"),
    ("7", "1. first\n2. so 7\n3. done"),
    # run-on, reasoning
    ("18", "It is 18.\n\nQuestion: What is 5 + 5?\nAnswer: 10"),
    ("18", "It is 18.\nQ: What is 5 + 5?"),
    ("18", "It is 18.<|im_end|>\n99"),
    ("18", "<think>is it 5?</think>18"),
    ("18", "The prompt opened it, 5 </think> 18"),
    ("18", "Question: What is 9 + 9?\n\nIt is 18"),
]


@pytest.mark.parametrize(("gold", "text"), READ)
def test_a_right_answer_is_right_however_it_is_written(gold: str, text: str) -> None:
    assert scored(gold, text).outcome is Outcome.CORRECT


NOT_RIGHT = [
    ("5", "-5", Outcome.WRONG),
    ("567", "1 234 567", Outcome.WRONG),
    ("0", "10 000", Outcome.WRONG),
    ("2", "2 million", Outcome.WRONG),
    ("52", "5²", Outcome.WRONG),
    ("5", "3,5", Outcome.WRONG),
    ("3", r"\boxed{2\sqrt{3}}", Outcome.UNPARSEABLE),
    ("2", r"The answer is 2\pi", Outcome.UNPARSEABLE),
    ("4", "The answer is 3 + 4", Outcome.UNPARSEABLE),
    ("2", r"\boxed{1, 2}", Outcome.UNPARSEABLE),
    ("3", "1,2,3", Outcome.UNPARSEABLE),
    ("5", "5/0", Outcome.UNPARSEABLE),
    ("9", "9" * 5000, Outcome.UNPARSEABLE),
    ("9", "1e999999", Outcome.UNPARSEABLE),
    ("4", "GPT-4", Outcome.UNPARSEABLE),
    ("30", "at 10:30", Outcome.UNPARSEABLE),
    ("2", "I do not know.", Outcome.UNPARSEABLE),
    ("0", "0x1F", Outcome.UNPARSEABLE),
    ("42", "12. It is 42.\n\nThe answer is 43", Outcome.WRONG),
    ("10", "It is 18.\n\nQuestion: What is 5 + 5?\nAnswer: 10", Outcome.WRONG),
    ("1", "<think>1</think>", Outcome.UNPARSEABLE),
    ("1", "<think>it is 1", Outcome.TRUNCATED),
]


@pytest.mark.parametrize(("gold", "text", "outcome"), NOT_RIGHT)
def test_what_is_not_the_gold_is_not_right(gold: str, text: str, outcome: Outcome) -> None:
    assert scored(gold, text).outcome is outcome


CUT = [
    ("so 40 + 2 = 42", Outcome.TRUNCATED),
    ("", Outcome.TRUNCATED),
    ("The answer is 42", Outcome.TRUNCATED),  # the next digit may be missing
    (r"\boxed{42", Outcome.TRUNCATED),
    ("#### 42", Outcome.TRUNCATED),
    ("The answer is 42, since", Outcome.CORRECT),
    (r"\boxed{42} which is", Outcome.CORRECT),
    ("#### 42\n", Outcome.CORRECT),
    ("The answer is 41, since", Outcome.WRONG),
    ("It is 42\n\nQuestion: and now", Outcome.CORRECT),  # the answer was over, only the run-on was cut
    ("It is 41\n\nQuestion: and now", Outcome.WRONG),
    ("<think>hm 42", Outcome.TRUNCATED),
]


@pytest.mark.parametrize(("text", "outcome"), CUT)
def test_a_cut_answer_needs_a_marker(text: str, outcome: Outcome) -> None:
    assert scored("42", text, "length").outcome is outcome


def test_what_was_read_is_kept() -> None:
    assert scored("3", "$29.50").parsed == "29.5"
    assert scored("3", "1/3").parsed == "1/3"


@pytest.mark.parametrize(
    "gold", ["42", "-5", "$29.00", "1,234", "3/4", "12 apples", "½", "1.2e3", "#### 42", "50 %", r"\frac{3}{4}"]
)
def test_a_gold_is_one_number(gold: str) -> None:
    assert NUMERIC.check_gold(SuiteItem("item", gold)) is None


@pytest.mark.parametrize(
    ("gold", "why"),
    [
        ("", "no number"),
        ("forty-two", "no number"),
        ("1 or 2", "more than one number"),
        ("Natalia sold 48/2 = 24 clips in May.\n#### 72", "more than one number"),
        ("She has many and many apples more: 72", "more than one number"),
        (r"2\sqrt{3}", "more than one number"),
        ("1/0", "can be read"),
        ("9" * 400, "more than one number"),
    ],
)
def test_a_whole_solution_is_no_gold(gold: str, why: str) -> None:
    assert why in str(NUMERIC.check_gold(SuiteItem("item", gold)))


whole = st.integers(-(10**9), 10**9)
decimals = st.decimals(-(10**9), 10**9, places=4, allow_nan=False, allow_infinity=False)


def grouped(value: Decimal, mark: str, point: str) -> str:
    return f"{value:,f}".replace(",", "\0").replace(".", point).replace("\0", mark)


def scientific(value: Decimal, form: str) -> str:
    digits, _, exponent = f"{value:E}".partition("E")
    return form.format(digits, int(exponent))


Form = Callable[[Decimal], str]
PLAIN_FORMS: list[Form] = [
    lambda value: f"{value:f}",
    lambda value: grouped(value, ",", "."),
    lambda value: grouped(value, "\u202f", "."),
    lambda value: grouped(value, "'", "."),
    lambda value: f"{value:f}".replace("-", "−"),
    lambda value: f"{value:f}".replace("-", "–"),
    lambda value: scientific(value, "{}e{}"),
    lambda value: scientific(value, "{} × 10^{}"),
    lambda value: scientific(value, "{} \\times 10^{{{}}}"),
    lambda value: f"${value:f}",
    lambda value: f"{value:f}".replace("-", "-$") if value < 0 else f"${value:f}",
    lambda value: "".join(chr(ord(char) + 0xFEE0) for char in f"{value:f}"),
]
FRAMES = [
    "{}",
    "{}.",
    "**{}**",
    "`{}`",
    "{} apples",
    "{} %",
    "The answer is {}.",
    "The answer is {} since 4 is even.",
    "Answer: {}",
    "3 steps\n#### {}",
    "\\boxed{{{}}}",
    "$\\boxed{{{}}}$ in 2 steps.",
    "| a | {} |",
    "20 are too many, so {}",
    "<think>8?</think>{}",
    "{}\n\nQuestion: What is 1 + 1?",
]
forms, frames = st.sampled_from(PLAIN_FORMS), st.sampled_from(FRAMES)


@given(decimals, forms, frames)
def test_a_number_scores_as_itself_in_every_form(value: Decimal, form: Form, frame: str) -> None:
    result = scored(str(value), frame.format(form(value)))
    assert result.outcome is Outcome.CORRECT, result


@given(decimals, decimals, forms, frames)
def test_another_number_never_scores(gold: Decimal, value: Decimal, form: Form, frame: str) -> None:
    assume(gold != value)
    assert scored(str(gold), frame.format(form(value))).outcome is Outcome.WRONG


@given(whole, st.integers(1, 10**6), st.sampled_from(["{}/{}", r"\frac{{{}}}{{{}}}", "{} / {}"]), frames)
def test_fractions_are_exact(above: int, below: int, form: str, frame: str) -> None:
    result = scored(f"{above}/{below}", frame.format(form.format(above, below)))
    assert (result.outcome, result.parsed) == (Outcome.CORRECT, spell(Fraction(above, below)))


@given(st.fractions())
def test_a_spelling_is_read_back(value: Fraction) -> None:
    assume(len(spell(value)) < 60)
    assert scored(spell(value), spell(value)).outcome is Outcome.CORRECT


@given(st.text(st.sampled_from("0123456789.,/-−$ \n") | st.characters()), st.sampled_from(["stop", "length", None]))
def test_no_text_raises(text: str, finish_reason: str | None) -> None:
    assert scored("42", text, finish_reason).outcome is not Outcome.FAILED
    NUMERIC.check_gold(SuiteItem("item", text))


@given(st.integers(0, 6000), st.sampled_from(["1,234.50 ", "-$1,234.50. ", "1.2345 × 10^3 "]))
def test_a_number_is_found_wherever_pieces_of_a_long_text_end(padding: int, number: str) -> None:
    result = scored(
        "1234.5" if "-" not in number else "-1234.5", f"7 {number}" + "word " * (padding // 5) + "x" * (padding % 5)
    )
    assert result.outcome is Outcome.CORRECT


LONG = {
    "digits": "9",
    "numbers": "1 ",
    "lists": "1,",
    "versions": "1.",
    "fractions": "1/",
    "times": "1:2 ",
    "minus": "-",
    "boxes": "\\boxed{",
    "braces": "{",
    "markers": "the answer is ",
    "answers": "Answer: ",
    "open": "<think>",
    "closed": "</think>",
    "stars": "*",
    "spaces": " ",
    "lines": "\n",
    "questions": "a\nQuestion",
    "frac": "\\frac{1}{",
    "exponents": "1e",
    "powers": "10^",
    "words": "x1",
    "marks": "\u0315\u0300",
    "ligatures": "\ufdfa",
    "thin": "123\u2009",
    "superscripts": "²",
    "list items": "\n1. a",
    "prose": "The quick brown fox. ",
}


@pytest.mark.parametrize("shape", LONG)
@pytest.mark.parametrize("frame", ["{}", "The answer is 7. {}", "{} and 7"])
def test_an_answer_of_100_kb_costs_milliseconds(shape: str, frame: str) -> None:
    text = frame.format((LONG[shape] * 100_000)[:100_000])
    fastest = min(elapsed(text) for _ in range(2))
    assert fastest < 0.25


def elapsed(text: str) -> float:
    start = time.process_time()
    scored("42", text, "length")
    return time.process_time() - start
