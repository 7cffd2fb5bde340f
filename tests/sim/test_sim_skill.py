"""The embedded model does sums: how well, with which KV cache, and the same whether it decodes or scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.arithmetic import asked, generate
from pytest_tokenwatt.records import SuiteItem
from pytest_tokenwatt.sim.lm import LanguageModel, Logits, contexts_of
from pytest_tokenwatt.sim.scoring import score_prompt, scored_token
from pytest_tokenwatt.sim.skill import Skill
from pytest_tokenwatt.sim.tokenizer import END_OF_TEXT, Tokenizer

TOKENIZER = Tokenizer()
ITEMS = list(generate(2000))
SHOTS = "".join(f"{item.prompt} {item.answer}\n\n" for item in generate(5, seed=7))


class Model:
    """The engine's way to a token, without the engine."""

    def __init__(self, precision: str = "auto", seed: int = 0) -> None:
        self.lm = LanguageModel(TOKENIZER, seed=seed, precision=precision)
        self.skill = Skill(TOKENIZER, self.lm)

    def logits(self, ids: Sequence[int]) -> Logits:
        rows = self.lm.logits(contexts_of(ids)[-1:])
        self.skill.steer(rows, ids, len(ids))
        last: Logits = rows[0]
        return last

    def greedy(self, prompt: Sequence[int], most: int = 16) -> list[int]:
        ids = list(prompt)
        while len(ids) < len(prompt) + most and ids[-1] != END_OF_TEXT:
            ids.append(int(self.logits(ids).argmax()))
        return ids[len(prompt) :]

    def says(self, prompt: str) -> str:
        return TOKENIZER.decode(self.greedy(TOKENIZER.encode(prompt)))


@cache
def right(precision: str, seed: int) -> tuple[bool, ...]:
    """Which of the items a model gets right at temperature 0; all are asked at once, a token a round."""
    model = Model(precision, seed)
    prompts = [TOKENIZER.encode(item.prompt or "") for item in ITEMS]
    scripts = [model.skill.current(prompt) for prompt in prompts]
    texts = [list(prompt) for prompt in prompts]
    for _ in range(8):
        rows = model.lm.logits(np.array([ids[-3:] for ids in texts]))
        for row, ids, script in zip(rows, texts, scripts, strict=True):
            assert script is not None
            script.steer(row, len(ids))
            ids.append(int(row.argmax()))
    said = [ids[len(prompt) :] for ids, prompt in zip(texts, prompts, strict=True)]
    whole = [TOKENIZER.decode(ids[: ids.index(END_OF_TEXT)]) for ids in said]
    return tuple(text == f" {item.answer}" for text, item in zip(whole, ITEMS, strict=True))


def score(precision: str, seed: int, count: int) -> float:
    return 100 * float(np.mean(right(precision, seed)[:count]))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [200, 2000])
def test_precisions_differ_as_their_noise_says(seed: int, count: int) -> None:
    """A gate of one point on 200 items passes fp8 and fails int4, for every one of these models."""
    baseline = score("auto", seed, count)

    assert 93 <= baseline <= 97
    assert abs(score("fp8", seed, count) - baseline) <= 1.0
    assert -15 <= score("int4", seed, count) - baseline <= -8


@pytest.mark.parametrize("seed", range(3))
def test_errors_turn_some_answers_over_in_both_directions(seed: int) -> None:
    def flips(precision: str) -> tuple[int, int]:
        pairs = list(zip(right("auto", seed), right(precision, seed), strict=True))
        return pairs.count((True, False)), pairs.count((False, True))

    assert all(0 < flipped <= 20 for flipped in flips("fp8"))
    assert flips("int4")[0] > 150
    assert flips("int4")[1] > 5


def test_models_know_different_sums_and_no_kind_is_beyond_them() -> None:
    assert right("auto", 0) != right("auto", 1)
    for domain in ("addition", "subtraction", "multiplication"):
        known = [good for good, item in zip(right("auto", 0), ITEMS, strict=True) if item.domain == domain]
        assert 0.9 < np.mean(known) < 1


def test_a_wrong_answer_has_one_digit_wrong_and_ends_like_a_right_one() -> None:
    model = Model("int4")
    wrong = [item for item, good in zip(ITEMS[:200], right("int4", 0)[:200], strict=True) if not good]
    assert wrong
    for item in wrong:
        text = model.says(item.prompt or "")
        assert len(text) == len(f" {item.answer}")
        assert 1 <= sum(a != b for a, b in zip(text, f" {item.answer}", strict=True)) <= 2


def first_known(model: Model, count: int = 20) -> list[SuiteItem]:
    return [item for item in ITEMS[:count] if model.says(item.prompt or "") == f" {item.answer}"]


@pytest.mark.parametrize("precision", ["auto", "int4"])
def test_examples_and_chats_get_the_answer_of_the_bare_question(precision: str) -> None:
    model = Model(precision)
    for item in ITEMS[:20]:
        prompt = item.prompt or ""
        question = prompt.removeprefix("Question: ").removesuffix("\nAnswer:")
        alone = model.says(prompt)
        assert model.says(SHOTS + prompt) == alone
        for content in (question, prompt, SHOTS + prompt):
            turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
            ids = TOKENIZER.encode_chat(turns)
            assert TOKENIZER.decode(model.greedy(ids)) == alone.strip()


def test_a_chat_answers_its_last_user() -> None:
    model = Model()
    known = first_known(model)
    turns = [
        turn
        for item in known
        for turn in (
            {"role": "user", "content": (item.prompt or "")[len("Question: ") : -len("\nAnswer:")]},
            {"role": "assistant", "content": item.answer},
        )
    ]

    assert TOKENIZER.decode(model.greedy(TOKENIZER.encode_chat(turns[:-1]))) == known[-1].answer
    assert TOKENIZER.decode(model.greedy(TOKENIZER.encode_chat(turns))) == known[-1].answer


@pytest.mark.parametrize(
    "prompt",
    [
        "Answer:",
        "Question: Why?\nAnswer:",
        "Question: 1 + 2 = ?",
        asked(f"{'9' * 90} + 1 = ?"),
    ],
)
def test_other_text_has_no_script(prompt: str) -> None:
    assert Model().skill.current(TOKENIZER.encode(prompt)) is None


def test_a_begun_answer_is_gone_on_with() -> None:
    model = Model()
    item = first_known(model)[0]

    assert model.says(f"{item.prompt} {item.answer[:2]}") == item.answer[2:]


@given(st.lists(st.integers(0, TOKENIZER.vocab_size - 1), max_size=60))
def test_any_ids_will_do(ids: list[int]) -> None:
    model = Model()
    rows = model.lm.logits(contexts_of(ids))
    before = rows.copy()
    model.skill.steer(rows, ids, 0)
    assert (rows == before).all()


SNIPPETS = st.sampled_from(
    [
        TOKENIZER.encode(SHOTS + "Question: 12 + 30 = ?\nAnswer:"),
        TOKENIZER.encode(asked("369 + 485 = ?")),
        TOKENIZER.encode(" 854"),
        TOKENIZER.encode_chat([{"role": "user", "content": "What is 3 minus 12?"}]),
        TOKENIZER.encode_chat([{"role": "user", "content": "Question: 5 * 5 = ?\nAnswer:"}]),
        TOKENIZER.encode("Answer: no assistant\n"),
        [END_OF_TEXT],
        [300, 400],
    ]
)


@settings(max_examples=25, deadline=None)
@given(st.lists(SNIPPETS, min_size=1, max_size=4), st.lists(st.integers(0, 900), max_size=3))
def test_logits_depend_only_on_what_stands_before(snippets: list[list[int]], cuts: list[int]) -> None:
    """Scored whole, in parts, or place by place as in decoding: the same scripts at the same places."""
    model = Model("int4")
    ids = [token for snippet in snippets for token in snippet][:300]
    whole = model.lm.logits(contexts_of(ids))
    parts = whole.copy()
    alone = whole.copy()
    model.skill.steer(whole, ids, 0)
    for start, end in pairwise(sorted({0, *(min(cut, len(ids)) for cut in cuts), len(ids) + 1})):
        model.skill.steer(parts[start:end], ids, start)
    for place in range(len(ids) + 1):
        model.skill.steer(alone[place : place + 1], ids[:place], place)
    assert (whole == parts).all()
    assert (whole == alone).all()


@pytest.mark.parametrize("precision", ["auto", "fp8", "int4"])
def test_scoring_a_prompt_gives_the_log_probabilities_of_decoding(precision: str) -> None:
    model = Model(precision)
    prompt = TOKENIZER.encode(SHOTS + (ITEMS[0].prompt or ""))
    ids = list(prompt)
    decoded = []
    for _ in range(12):
        logits = model.logits(ids)
        decoded.append(scored_token(logits, int(logits.argmax()), 3))
        ids.append(decoded[-1].token)

    scored = score_prompt(model.lm, model.skill, ids, 3)[len(prompt) - 1 :]

    assert [entry.token for entry in scored] == [entry.token for entry in decoded]
    assert [entry.logprob for entry in scored] == pytest.approx([entry.logprob for entry in decoded], abs=1e-9)
    assert [[token for token, _ in entry.top] for entry in scored] == [
        [token for token, _ in entry.top] for entry in decoded
    ]


def test_a_digit_and_its_rival_share_the_probability() -> None:
    model = Model("int4")
    ids = TOKENIZER.encode(f"{ITEMS[1].prompt} ")
    likeliest = scored_token(model.logits(ids), 0, 3).top

    assert np.exp([logprob for _, logprob in likeliest[:2]]).sum() == pytest.approx(1, abs=1e-6)
    assert likeliest[2][1] < -12
    assert {TOKENIZER.decode([token]) for token, _ in likeliest[:2]} <= set("-0123456789")
