"""The audit of timed runs: what is asked of the baseline, what counts, and what makes it invalid."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from drift_server import VOCABULARY, Server, logprob, refusal

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.audit import audit_run
from pytest_tokenwatt.records import Reply
from pytest_tokenwatt.records.audit import AuditRecord, Served

OWN = (3, 1, 4, 1, 5)
"""What ``Server`` answers everybody."""
SERVED = tuple(Served(f"r/{at}", (at, 2, 7, 4), (at + 1, 0, 6, 2, 8), 5, True) for at in range(6))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.quality.insisting._PAUSE_S", 0.0)


def audited(server: Server, served: Sequence[Served] = SERVED, **given: Any) -> AuditRecord:
    return asyncio.run(audit_run("serve-r0", served, server, **given))


def mean(prompt: Sequence[int], output: Sequence[int]) -> float:
    return statistics.fmean(logprob(a, b) for a, b in zip((prompt[-1], *output), output, strict=False))


def scoring(server: Server) -> list[dict[str, Any]]:
    return [sent for sent in server.sent if "prompt_logprobs" in sent]


def only(record: AuditRecord) -> str:
    """The one reason, of a record without any figure."""
    assert record.status == "invalid"
    assert (record.gap, record.gap_median, record.engine_mean, record.bf16_mean) == (None,) * 4
    (reason,) = record.invalid
    return str(reason)


def test_both_outputs_are_scored_behind_the_same_prompt() -> None:
    record = audited(Server())
    engine = [mean(one.prompt, one.output) for one in SERVED]
    bf16 = [mean(one.prompt, OWN) for one in SERVED]
    gaps = [b - e for e, b in zip(engine, bf16, strict=True)]
    assert (record.run, record.status, record.picked, record.samples) == ("serve-r0", "audited", 6, 6)
    assert record.engine_mean == pytest.approx(statistics.fmean(engine), rel=1e-6)
    assert record.bf16_mean == pytest.approx(statistics.fmean(bf16), rel=1e-6)
    assert record.gap_median == pytest.approx(statistics.median(gaps), rel=1e-5)
    assert record.gap_max == pytest.approx(max(gaps), rel=1e-5)
    assert (record.length_ratio, record.length_ratio_min) == (1.0, 1.0)


def test_what_is_asked_is_what_the_timed_requests_asked() -> None:
    server = Server()
    natural = Served("natural", (1, 2), (3,), 9, ignore_eos=False)
    extra = {"repetition_penalty": 1.1, "stream": True, "stream_options": {}, "max_tokens": 3, "temperature": None}
    audited(server, [SERVED[0], natural])
    audited(server, [natural], extra_body=extra)
    asked = [sent for sent in server.sent if "prompt_logprobs" not in sent]
    assert asked == [
        {"prompt": (0, 2, 7, 4), "max_tokens": 5, "temperature": 0, "return_token_ids": True, "ignore_eos": True},
        {"prompt": (1, 2), "max_tokens": 9, "temperature": 0, "return_token_ids": True},
        {"prompt": (1, 2), "max_tokens": 9, "return_token_ids": True, "repetition_penalty": 1.1},
    ]
    assert {(sent["prompt_logprobs"], sent["max_tokens"]) for sent in scoring(server)} == {(1, 1)}


def test_requests_are_bounded_and_equal_outputs_scored_once() -> None:
    server = Server(max_model_len=4096)
    prompts = [(at % 12, at // 12 % 12, 5) for at in range(100)]
    record = audited(server, [Served(str(prompt), prompt, OWN, 5, True) for prompt in prompts])
    assert server.busiest == 32
    assert len(scoring(server)) == 100
    assert (record.gap, record.gap_max, record.top1_gap, record.samples) == (0.0, 0.0, 0.0, 100)


def test_a_tied_token_is_the_likeliest_too() -> None:
    ranked = sorted(range(VOCABULARY), key=lambda token: -logprob(3, token))
    assert logprob(3, ranked[0]) == logprob(3, ranked[1]) > logprob(3, ranked[2])
    behind = replace(SERVED[0], prompt=(7, 3))
    shares = [audited(Server(), [replace(behind, output=(token,))]).engine_top1 for token in ranked[:3]]
    assert shares == [1.0, 1.0, 0.0]


def test_empty_outputs_are_counted_by_side() -> None:
    served = [replace(one, output=()) if at < 2 else one for at, one in enumerate(SERVED)]
    record = audited(Server(), served)
    assert (record.picked, record.samples, record.empty, record.empty_alone, record.empty_reference) == (6, 4, 2, 2, 0)
    assert (record.length_ratio, record.length_ratio_min) == (1.0, 0.0)
    silent = audited(Server(output=()), served)
    assert only(silent).startswith("nothing_scored: the baseline answers 0 of 4 prompts")
    assert (silent.empty, silent.empty_alone, silent.empty_reference) == (2, 0, 6)


def test_ends_beyond_the_context_are_cut_and_told() -> None:
    server = Server(max_model_len=9)  # scoring has room for 8 ids: 4 tokens of an output
    served = [replace(one, max_tokens=50) for one in SERVED]
    record = audited(server, served, max_model_len=9)
    assert record.engine_mean == pytest.approx(statistics.fmean(mean(one.prompt, one.output[:4]) for one in SERVED))
    assert record.notes == (
        "6 of 6 answers of the baseline had to be shorter than was asked for, by the baseline's max_model_len of 9",
        "max_model_len is 9: 12 sequences are cut to 8 tokens",
    )
    assert {sent["max_tokens"] for sent in server.sent} == {5, 1}
    assert record.length_ratio == 1.0


def test_prompts_without_room_are_left_out_and_most_of_them_must_fit() -> None:
    long = Served("long", (1,) * 7, (2, 3), 5, True)
    record = audited(Server(), [*SERVED, long], max_model_len=9)
    assert (record.picked, record.status) == (6, "audited")
    assert record.notes[0] == "1 of 7 prompts are left out: the baseline's max_model_len of 9 has no room for them"
    assert only(audited(Server(), [*SERVED, *[long] * 7], max_model_len=9)).startswith("no_room: 7 of 13 prompts")


def test_an_impossible_token_is_a_gap_of_the_candidate_and_a_fault_of_the_baseline() -> None:
    def impossible(token: int) -> Callable[[dict[str, Any]], None]:
        def change(choice: dict[str, Any]) -> None:
            for entry in choice["prompt_logprobs"] or ():
                if entry and str(token) in entry:
                    entry[str(token)]["logprob"] = -9999.0

        return change

    worse = audited(Server(change=impossible(8)))
    assert worse.status == "audited"
    assert worse.gap_median is not None
    assert worse.gap_median > 1990
    assert "6 served tokens have probability 0" in worse.notes[0]
    assert only(audited(Server(change=impossible(5)))).startswith("zero_probability: 6 tokens that the baseline")


@pytest.mark.parametrize("told", [None, {"4": None}])
def test_a_token_that_was_not_scored_forbids_the_figures(told: Any) -> None:
    def change(choice: dict[str, Any]) -> None:
        if choice["prompt_logprobs"]:
            entry = choice["prompt_logprobs"][-1]
            choice["prompt_logprobs"][-1] = told and {name: {"logprob": None} for name in entry}

    assert only(audited(Server(change=change))).startswith("positions_invalid: 12 of 60 tokens")


def test_nothing_kept_and_no_ids() -> None:
    server = Server()
    assert only(audited(server, [])) == "no_outputs: no output was kept"
    assert only(audited(server, [replace(SERVED[0], prompt=()), *SERVED])).startswith("no_token_ids: of 1 of 7")
    assert not server.sent


def test_a_baseline_that_tells_no_ids() -> None:
    record = audited(Server(change=lambda choice: choice.update(token_ids=None)))
    assert only(record).startswith("no_token_ids: the baseline tells no token ids")


@pytest.mark.parametrize("asked", ["answer", "score"])
def test_another_prompt_than_was_sent(asked: str) -> None:
    def change(choice: dict[str, Any]) -> None:
        if (choice["prompt_logprobs"] is None) == (asked == "answer"):
            choice["prompt_token_ids"] = [9, *choice["prompt_token_ids"]]

    assert only(audited(Server(change=change))).startswith("wrong_echo:")


def test_refusals_are_told_with_the_servers_words() -> None:
    assert only(audited(Server(always=refusal(404, "no such model")))).startswith(
        "answers_failed: 6 of 6 prompts have no answer of the baseline: POST answered 404: no such model"
    )
    assert "greater than max allowed: 0" in only(audited(Server(max_logprobs=0)))
    foreign = replace(SERVED[0], output=(VOCABULARY,))
    assert only(audited(Server(), [foreign])).endswith("compare models that share a tokenizer, or drop the audit block")


def test_passing_trouble_is_asked_again() -> None:
    assert audited(Server(errors=[refusal(500), refusal(503)])).status == "audited"


class Dying(Server):
    """Dies of the first request for log-probabilities."""

    async def complete(self, prompt: str | Sequence[int], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        if "prompt_logprobs" in sampling:
            raise refusal(None, "connection closed")
        return await super().complete(prompt, max_tokens=max_tokens, **sampling)


def test_a_death_is_told_with_its_cause_and_a_remedy_of_the_audit() -> None:
    text = only(audited(Dying(), death=lambda: "engine baseline died with exit code 137"))
    assert text.startswith("engine_died: engine baseline died with exit code 137, while it scored sequences of up to 9")
    assert text.endswith("start the baseline with a smaller --max-num-batched-tokens")
    early = only(audited(Server(always=EngineError("engine_unreachable", "refused")), death=lambda: "engine died"))
    assert early.startswith("engine_died: engine died, while it answered audited prompts with up to 5 tokens")
