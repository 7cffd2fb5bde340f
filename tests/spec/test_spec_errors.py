"""What is wrong with a spec: one line each, with the line of the file, the key and the remedy, all at once."""

from __future__ import annotations

import pytest
from spec_texts import complaints, load

BASE = "engine: {endpoint: 'http://127.0.0.1:8000/v1'}\n"


def engine(text: str) -> str:
    return f"engine: {{{text}}}\n"


def second(text: str) -> str:
    return BASE + text + "\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        # numbers
        (second("measurement: {window_s: -1}"), "2: measurement.window_s: must be above 0, not -1"),
        (second("measurement: {window_s: 0}"), "2: measurement.window_s: must be above 0, not 0"),
        (
            second("measurement: {window_s: .nan}"),
            "2: measurement.window_s: must be a finite number below 1e15, not NaN",
        ),
        (
            second("measurement: {window_s: .inf}"),
            "2: measurement.window_s: must be a finite number below 1e15, not infinity",
        ),
        (
            second("measurement: {window_s: '120'}"),
            "2: measurement.window_s: must be a number, not the text '120'; remove the quotes",
        ),
        (second("measurement: {window_s: NaN}"), "2: measurement.window_s: must be a number, not the text 'NaN'"),
        (second("measurement: {window_s: true}"), "2: measurement.window_s: must be a number, not true"),
        (second("measurement: {window_s: [1]}"), "2: measurement.window_s: must be a number, not a list"),
        (second("measurement: {window_s: 1:30}"), "2: measurement.window_s: must be a number, not the text '1:30'"),
        (second("measurement: {repeats: 1.5}"), "2: measurement.repeats: must be a whole number, not 1.5"),
        (second("measurement: {repeats: 0}"), "2: measurement.repeats: must be at least 1, not 0"),
        (second("workload: {seed: " + "9" * 5000 + "}"), "2: workload.seed: is not an int that can be read"),
        (
            second("workload: {seed: " + "9" * 400 + "}"),
            "2: workload.seed: must be a finite number below 1e15, not a huge number",
        ),
        (
            second("measurement: {warmup_s: 9, warmup_max_s: 3}"),
            "2: measurement: warmup_max_s (3) is below warmup_s (9)",
        ),
        (second("sweep: {start_rps: -2}"), "2: sweep.start_rps: must be above 0, not -2"),
        (second("sweep: {growth: 1}"), "2: sweep.growth: must be above 1, not 1"),
        (second("sweep: {resolution: 1}"), "2: sweep.resolution: must be above 1, not 1"),
        (second("sweep: {backoff: 1}"), "2: sweep.backoff: must be below 1, not 1"),
        (second("sweep: {backoff: 0}"), "2: sweep.backoff: must be above 0, not 0"),
        (second("sweep: {rates: []}"), "2: sweep.rates: must not be an empty list; remove the key for the default"),
        (second("sweep: {rates: [2, -1]}"), "2: sweep.rates[1]: must be above 0, not -1"),
        (second("sweep: {rates: 3}"), "2: sweep.rates: must be a list, not 3; write [ … ]"),
        (second("sweep: {max_rps: 1}"), "2: sweep: start_rps (2) is above max_rps (1)"),
        (
            second("workload: {input_tokens: {median: 9, p90: 3}}"),
            "2: workload.input_tokens: p90 (3) is below the median (9)",
        ),
        (second("workload: {input_tokens: {median: 9}}"), "2: workload.input_tokens.p90: is missing; add it"),
        (second("workload: {output_tokens: 0}"), "2: workload.output_tokens: must be at least 1, not 0"),
        (second("power: {sampling_hz: 0}"), "2: power.sampling_hz: must be above 0, not 0"),
        (second("power: [{source: none}, {sampling_hz: 0}]"), "2: power[1].sampling_hz: must be above 0, not 0"),
        (second("load: {workers: 0}"), "2: load.workers: must be auto or at least 1, not 0"),
        (second("drift: {top_k: 1}"), "2: drift.top_k: must be at least 2, or -1 for the whole vocabulary, not 1"),
        # the promise
        (second("slo: {}"), "2: slo: promises nothing; name a bound such as ttft_p99_ms: 2000, or remove the block"),
        (second("slo: {ttft_p99: 3}"), "2: slo.ttft_p99: is no promise; did you mean ttft_p99_ms?"),
        (second("slo: {ttfl_p99_ms: 3}"), "2: slo.ttfl_p99_ms: is no promise; did you mean ttft_p99_ms?"),
        (
            second("slo: {latency: 3}"),
            "2: slo.latency: is no promise; write <metric>_p<percentile>_ms, such as ttft_p99_ms; metrics: ttft",
        ),
        (
            second("slo: {ttft_p100_ms: 3}"),
            "2: slo.ttft_p100_ms: percentile 100 is not between 0 and 100; such as ttft_p99_ms or tpot_p99.9_ms",
        ),
        (
            second("slo: {ttft_p99_ms: 3, ttft_p99.0_ms: 4}"),
            "2: slo: ttft_p99_ms and ttft_p99.0_ms are the same percentile; keep one of them",
        ),
        (second("slo: {ttft_p99_ms: 0}"), "2: slo.ttft_p99_ms: must be above 0, not 0"),
        (second("slo: 3"), "2: slo: must be a mapping, not 3"),
        # keys
        (second("measurement: {window: 1}"), "2: measurement.window: unknown key; did you mean window_s?"),
        (second("window_s: 1"), "2: window_s: unknown key; it belongs to measurement"),
        (second("zzz: 1"), "2: zzz: unknown key; known keys: name, title,"),
        (second("measurement: 3"), "2: measurement: must be a mapping, not 3"),
        (
            second("gates: {kl: {mode: of}}"),
            "2: gates.kl.mode: must be 'enforce', 'info' or 'off', not the text 'of'; did you mean off?",
        ),
        (second("gates: {kl: {mode: true}}"), "2: gates.kl.mode: must be 'enforce', 'info' or 'off', not true"),
        (second("gates: {rules: [{name: a}]}"), "2: gates.rules[0].metric: is missing; add it"),
        (
            second("gates: {rules: [{name: a, metric: b}]}"),
            "2: gates.rules[0]: has no bound; give min, max, min_ratio or max_ratio",
        ),
        (
            second("gates: {rules: [{name: a, metric: b, min: 2, max: 1}]}"),
            "2: gates.rules[0]: min (2) is above max (1)",
        ),
        (
            second("profiles: {}"),
            "2: profiles: names no profile; write serve: {} for the usual one, or remove the block",
        ),
        (second("profiles: {own: {concurrency: 1}}"), "2: profiles.own.input_tokens: is missing; add it"),
        (
            second("name: a/b"),
            "2: name: the text 'a/b' cannot be part of a test id and a file name; use letters, digits",
        ),
        (second("configs: []"), "2: configs: must not be an empty list; remove the key for the default"),
        (second("configs: [a]"), "2: configs[0]: must be a mapping, not the text 'a'"),
        (second("configs: [{key: '..'}]"), "2: configs[0].key: the text '..' cannot be part of a test id"),
        (second("configs: [{key: a, engine: 3}]"), "2: configs[0].engine: must be a mapping, not 3"),
        # the engine
        (
            engine("command: 'vllm serve --port {port}'"),
            "1: engine.command: must be a list of words, not one text; write [vllm, serve, --port, {port}]",
        ),
        (
            engine("command: []"),
            "1: engine.command: must name a program; write [program, argument, …], or remove the key",
        ),
        (
            engine("command: [a, [b]]"),
            "1: engine.command: word 2 is a list; write every word of the command as its own item",
        ),
        (engine("command: [a, null]"), "1: engine.command: word 2 is empty; write '' for an empty word"),
        (engine("command: [serve]"), "1: engine.command: does not say where to listen; add the engine's port option"),
        (
            engine("command: [s, '{prot}', --port, 1]"),
            "1: engine.command: unknown placeholder {prot}; did you mean {port}?",
        ),
        (
            engine("command: [s, '{port}'], endpoint: 'http://h/v1'"),
            "1: engine.endpoint: excludes command; keep command to have it started, endpoint to attach to it",
        ),
        (
            engine("command: [s, '{port}'], up: [u], down: [d]"),
            "1: engine.up: excludes command; up is for an engine with an endpoint",
        ),
        (
            engine("up: [u], down: [d]"),
            "1: engine.up: needs an endpoint; add endpoint: the URL at which the model answers",
        ),
        (engine("endpoint: 'http://h/v1', up: [u]"), "1: engine.up: needs a down; add the command that undoes it"),
        (
            engine("endpoint: 'http://h/v1', down: [u]"),
            "1: engine.down: needs an up; add the command that it undoes, or remove it",
        ),
        (engine("endpoint: 'http://h/v1', args: [--x]"), "1: engine.args: needs a command to be appended to"),
        (
            engine("endpoint: 'h:8000'"),
            "1: engine.endpoint: is not an http(s) URL; write it like http://127.0.0.1:8000/v1",
        ),
        (
            engine("endpoint: 'http://h:99999/v1'"),
            "1: engine.endpoint: is not a URL; write it like http://127.0.0.1:8000/v1",
        ),
        (engine("endpoint: 'http://h/v1?x=1'"), "1: engine.endpoint: must not have a query or a fragment"),
        (
            engine("endpoint: 'http://h/v1', verify_tls: no"),
            "1: engine.verify_tls: must be true or false, not the text 'no'; write true or false without quotes",
        ),
        (
            engine("endpoint: 'http://h/v1', extra_body: {a: [.nan]}"),
            "1: engine.extra_body: holds NaN or an infinity, which JSON cannot carry",
        ),
        (
            engine("endpoint: 'http://h/v1', env: {A=B: c}"),
            "1: engine.env.A=B: cannot be the name of a variable; write NAME: value",
        ),
    ],
)
def test_one_line_says_where_what_and_the_remedy(text: str, line: str) -> None:
    (found,) = complaints(text)[:1] if "own:" in text else complaints(text)
    assert found.startswith(f"spec.yaml:{line}")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "configs: [{key: a, role: baseline}, {key: b, role: baseline}]",
            ["configs[1].role: a second baseline, the first is in line 2; give one of them the role tuned or other"],
        ),
        ("configs: [{key: a}, {key: a}]", ["configs[1].key: a is taken, see line 2; names must differ"]),
        ("scenarios: [{name: a}, {name: a}]", ["scenarios[1].name: a is taken, see line 2; names must differ"]),
        ("accuracy: [{suite: x/a.jsonl}, {suite: y, name: a}]", ["accuracy[1].name: a is taken, see line 2"]),
        (
            "accuracy: [{suite: x/a.jsonl}, {suite: y/mean.jsonl}]",
            ["accuracy[1].name: mean is what the gate of all suites together is called; give the suite another name"],
        ),
        ("drift: {perplexity: [{name: a, file: b}, {name: a, file: c}]}", ["drift.perplexity[1].name: a is taken"]),
        (
            "gates: {rules: [{name: a, metric: b, min: 1}, {name: a, metric: c, min: 1}]}",
            ["gates.rules[1].name: a is taken"],
        ),
        (
            "configs: [{key: tuned}, {key: b, like: tund}]",
            ["configs[1].like: names no configuration; did you mean tuned?"],
        ),
        ("configs: [{key: a, like: a}]", ["configs[0].like: leads back to itself"]),
        (
            "configs: [{key: a, like: b}, {key: b, like: a}]",
            ["configs[0].like: leads back", "configs[1].like: leads back"],
        ),
        (
            "configs: [{key: a}, {key: b, like: a, engine: {args: [x]}}]",
            ["configs[1].engine: has no place beside like, which repeats a exactly; remove one of the two"],
        ),
        (
            "gates: {rules: [{name: r, metric: m, max: 1, configs: [tund], scenario: x}]}",
            [
                "gates.rules[0].configs[0]: names no configuration; did you mean tuned?",
                "gates.rules[0].scenario: names no scenario; known: default",
            ],
        ),
        (
            "configs: [{key: base, role: baseline, gates: {rules: [{name: r, metric: m, max_ratio: 1}]}}, {key: b}]",
            ["configs[0].gates.rules[0]: holds for the baseline only, which is compared with nothing; give min or max"],
        ),
        (
            "configs: [{key: base, gates: {rules: [{name: r, metric: m, max: 1, configs: [b]}]}}, {key: b}]",
            ["configs[0].gates.rules[0]: holds for no configuration, since it stands in the gates of another one"],
        ),
        (
            "configs: [{key: a, gates: {rules: [{name: r, metric: m, max: 1, configs: [b]}]}}]",
            ["configs[0].gates.rules[0].configs[0]: names no configuration; known: a"],
        ),
    ],
)
def test_names_that_clash_or_lead_nowhere(text: str, lines: list[str]) -> None:
    found = complaints(second(text))
    assert len(found) == len(lines)
    for one, expected in zip(found, lines, strict=True):
        assert one.startswith(f"spec.yaml:2: {expected}")


def test_all_problems_at_once_in_the_order_of_the_file() -> None:
    found = complaints(
        "engine:\n  comand: [x]\n  endpoint: nowhere\nmeasurement:\n  repeats: 0\nslo: {x: 1}\n"
        "configs:\n  - {key: a, role: first}\n  - {key: a}\ngates:\n  rules:\n    - {name: b c, metric: m}\n"
    )
    lines = [int(line.split(":")[1]) for line in found]
    assert lines == sorted(lines)
    assert set(lines) == {2, 3, 5, 6, 8, 9, 12}


# --- secrets


@pytest.mark.parametrize("key", ["api_key", "token", "apikey", "Authorization", "headers", "password"])
def test_a_secret_key_is_refused_with_the_way_to_do_it(key: str) -> None:
    block = "power: {source: redfish, password: hunter2secret}" if key == "password" else None
    text = second(block) if block else engine(f"endpoint: 'http://h/v1', {key}: hunter2secret")
    (line,) = complaints(text)
    assert "put the secret into an environment variable and write its name" in line
    assert "_env" in line
    assert "hunter2secret" not in line


@pytest.mark.parametrize(
    "secret", ["sk-abc123", "hf_abcdefghijklmnopqrstuvwxyz", "Bearer x", "a3f9c2d4e5b6a7f8c9d0e1f2", "two words", ""]
)
def test_a_pasted_secret_is_refused_and_not_repeated(secret: str) -> None:
    for text in (
        engine(f"endpoint: 'http://h/v1', api_key_env: '{secret}'"),
        engine(f"endpoint: 'http://h/v1', headers_env: {{X-Key: '{secret}'}}"),
        second(f"power: {{password_env: '{secret}'}}"),
    ):
        (line,) = complaints(text)
        assert "does not look like the name of a variable" in line
        assert not secret or secret not in line


def test_the_value_of_a_secret_variable_is_refused_as_its_name() -> None:
    (line,) = complaints(engine("endpoint: 'http://h/v1', api_key_env: '${KEY}'"), {"KEY": "PLAIN_SECRET"})
    assert "must be the name of a variable, not its value" in line
    assert "PLAIN_SECRET" not in line


@pytest.mark.parametrize(
    "text",
    [
        engine("endpoint: 'http://user:hunter2@h/v1'"),
        engine("endpoint: 'http://h/v1', env: {HF_TOKEN: hunter2}"),
        engine("command: [serve, --port, '{port}', --api-key, hunter2]"),
        engine("command: [serve, --port, '{port}'], args: [--api-key=hunter2]"),
        engine("endpoint: 'http://h/v1', up: [docker, run, -e, HF_TOKEN=hunter2], down: [d]"),
        engine("command: [serve, --port, '{port}'], prepare: [[login, --password, hunter2], [nvidia-smi]]"),
        engine("command: [serve, --port, '{port}'], cleanup: [logout, --api-key=hunter2]"),
    ],
)
def test_a_secret_in_the_open_is_refused(text: str) -> None:
    (line,) = complaints(text)
    assert "secret in the open" in line or "password in the URL" in line
    assert "hunter2" not in line


def test_a_secret_by_its_variable_is_fine() -> None:
    text = engine("command: [s, --port, '{port}', --api-key, '${KEY}'], env: {HF_TOKEN: '${KEY}', MAX_TOKENS: 3}")
    spec = load(text, {"KEY": "hunter2"})
    assert spec.configurations[0].engine.env["HF_TOKEN"] == "hunter2"
    assert "hunter2" not in str(spec.raw)
    assert "hunter2" not in str(spec.configurations[0].raw)


def test_a_wrong_value_out_of_a_variable_is_not_repeated() -> None:
    (line,) = complaints(second("measurement: {window_s: '${SECRET}'}"), {"SECRET": "hunter2"})
    assert line == "spec.yaml:2: measurement.window_s: must be a number, not text from a variable"


# --- the wording


@pytest.mark.parametrize("value", ["3", "text", "[1, {a: b}]", "{a: 1}", "true", "null", "-1", ".nan", "'${A}'"])
@pytest.mark.parametrize(
    "key",
    [
        "name",
        "title",
        "hardware",
        "engine",
        "model",
        "configs",
        "slo",
        "workload",
        "measurement",
        "sweep",
        "scenarios",
        "profiles",
        "accuracy",
        "drift",
        "audit",
        "budget",
        "score",
        "fleet",
        "power",
        "load",
        "gates",
        "not_covered",
    ],
)
def test_no_message_shows_the_validator_behind_it(key: str, value: str) -> None:
    try:
        load((BASE if key != "engine" else "") + f"{key}: {value}\n", {"A": "x"})
    except Exception as error:
        text = str(error)
        assert text.startswith("spec.yaml:")
        for word in ("pydantic", "Input should", "errors.py", "type=", "dict", "tuple", "Traceback", "NoneType"):
            assert word not in text


def test_a_rule_of_the_baseline_alone_needs_an_absolute_bound() -> None:
    spec = "configs: [{key: base, role: baseline}, {key: b}]\n"
    rule = "gates: {rules: [{name: r, metric: m, max_ratio: 1, configs: [base%s]}]}"
    (line,) = complaints(second(spec + rule % ""))
    assert "gates.rules[0]: holds for the baseline only" in line
    load(second(spec + rule % ", b"))
    load(second(spec + (rule % "").replace("max_ratio", "max")))
