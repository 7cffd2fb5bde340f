"""The base of every block of a spec, and the strict scalar types its keys are made of.

A number is a number: text in quotes, booleans, NaN and infinities are refused. Text that came out of ``${VAR}`` is the
exception (``Expanded``): it is read as a number or a boolean where one is wanted.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

LARGEST_NUMBER = 1e15
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TOKEN_PREFIX = re.compile(r"(hf_|sk_|pk_|ghp_|gho_|ghs_|github_pat_|nvapi|AKIA|eyJ)")


class Expanded(str):
    """Text that contains the value of a ``${VAR}``: never shown in a message, since it may be a secret."""

    __slots__ = ()


class Block(BaseModel):
    """A mapping of the spec: immutable, unknown keys refused, ``null`` meaning the default."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}


def wrong(what: str, remedy: str = "") -> PydanticCustomError:
    """A finding in the product's own words; ``what`` continues a line that starts with the key."""
    return PydanticCustomError("spec", "{what}", {"what": what, "remedy": remedy})


def shown(value: object) -> str:
    """A value for a message: short, on one line, and nothing that came out of the environment."""
    if isinstance(value, Expanded):
        return "text from a variable"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 40 else "a long text"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return {"inf": "infinity", "-inf": "-infinity", "nan": "NaN"}.get(str(value), f"{value:g}")
    if isinstance(value, int):
        return str(value) if abs(value) < LARGEST_NUMBER else "a huge number"
    if value is None:
        return "nothing"
    return "a mapping" if isinstance(value, Mapping) else "a list"


def _number(value: object) -> float:
    if isinstance(value, Expanded) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        raise wrong(f"must be a number, not {shown(value)}", "remove the quotes")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(f"must be a number, not {shown(value)}")
    if not abs(value) < LARGEST_NUMBER:
        raise wrong(f"must be a finite number below 1e15, not {shown(value)}")
    return value


def whole_number(value: object) -> int:
    """An integer, or a float without a fraction; anything else is refused."""
    number = _number(value)
    if math.floor(number) != number:
        raise wrong(f"must be a whole number, not {shown(number)}")
    return int(number)


def _boolean(value: object) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, Expanded) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise wrong(f"must be true or false, not {shown(value)}", "write true or false without quotes")


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise wrong(f"must be text, not {shown(value)}", "put it in quotes" if isinstance(value, int | float) else "")
    if "\0" in value:
        raise wrong("must not hold a NUL character")
    return value


def _filled(value: object) -> object:
    text = _text(value)
    if not str(text).strip():
        raise wrong("must not be empty", "remove the key for the default")
    return text


def _name(value: object) -> object:
    text = str(_text(value))
    if not _NAME.fullmatch(text):
        raise wrong(
            f"{shown(value)} cannot be part of a test id and a file name",
            "use letters, digits, '.', '_' and '-', starting with a letter, a digit or '_'",
        )
    return text


def _variable(value: object) -> object:
    """The name of an environment variable; the message never repeats what may be the secret itself."""
    remedy = "put the secret into an environment variable and write that variable's name here"
    if isinstance(value, Expanded):
        raise wrong("must be the name of a variable, not its value", "write the name without ${ }")
    text = str(_text(value))
    random_looking = len(text) >= 20 and "_" not in text and any(c.isdigit() for c in text)
    if not _VARIABLE.fullmatch(text) or _TOKEN_PREFIX.match(text) or random_looking:
        raise wrong("does not look like the name of a variable", remedy)
    return text


def _endpoint(value: object) -> object:
    text = str(_filled(value)).strip().rstrip("/")
    url = _split_url(text)
    if url.query or url.fragment:
        raise wrong("must not have a query or a fragment", "give the part up to /v1")
    return text if url.path else f"{text}/v1"


def _url(value: object) -> object:
    text = str(_filled(value)).strip()
    _split_url(text)
    return text


def _split_url(text: str) -> Any:
    remedy = "write it like http://127.0.0.1:8000/v1"
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise wrong("is not a URL", remedy) from None
    if url.scheme not in ("http", "https") or not url.hostname or port == 0 or re.search(r"\s", text):
        raise wrong("is not an http(s) URL", remedy)
    if url.username is not None:
        raise wrong("has a user or password in the URL", "name variables in api_key_env, headers_env or password_env")
    return url


def _argv(value: object) -> object:
    if isinstance(value, str):
        raise wrong("must be a list of words, not one text", _argv_remedy(value))
    if not isinstance(value, list | tuple):
        raise wrong(f"must be a list of words, not {shown(value)}")
    for place, word in enumerate(value):
        if isinstance(word, list | tuple | Mapping):
            raise wrong(f"word {place + 1} is {shown(word)}", "write every word of the command as its own item")
        if word is None:
            raise wrong(f"word {place + 1} is empty", "write '' for an empty word")
        _text(word)
    return tuple(value)


def _argv_remedy(text: str) -> str:
    if isinstance(text, Expanded) or not text.strip():
        return "write [program, argument, …]"
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    listed = ", ".join(words)
    return f"write [{listed}]" if len(listed) <= 100 else "write [program, argument, …]"


def _command(value: object) -> object:
    words = _argv(value)
    if isinstance(words, tuple) and (not words or not str(words[0]).strip()):
        raise wrong("must name a program", "write [program, argument, …], or remove the key")
    return words


def _commands(value: object) -> object:
    """One argv list, or a list of them."""
    if isinstance(value, list | tuple) and value and all(isinstance(part, list | tuple) for part in value):
        return tuple(_command(part) for part in value)
    if isinstance(value, list | tuple) and not value:
        return ()
    return (_command(value),)


def _logs(value: object) -> object:
    return _filled(value) if isinstance(value, str) else _command(value)


def one_or_more(block: type[Block]) -> BeforeValidator:
    """A single block or a list of blocks, always as a list."""
    listed: Any = block | list[block]  # type: ignore[valid-type]
    return BeforeValidator(
        lambda value: [value] if isinstance(value, Mapping) else value, json_schema_input_type=listed
    )


def text_or_mapping(value: object) -> object:
    """Text, or a free-form mapping."""
    return _filled(value) if isinstance(value, str) else _json_mapping(value)


def mapping_only(value: object) -> object:
    """A mapping whose keys are checked once it is merged."""
    if not isinstance(value, Mapping):
        raise wrong(f"must be a mapping, not {shown(value)}")
    return value


def drop_nulls(value: object) -> object:
    """A mapping of free keys where ``null`` means absent."""
    return {key: part for key, part in value.items() if part is not None} if isinstance(value, Mapping) else value


def _env_value(value: object) -> object:
    return None if value is None else _text(value)


def env_name(value: object) -> object:
    """A name that an environment can hold."""
    text = str(_filled(value))
    if "=" in text:
        raise wrong("cannot be the name of a variable", "write NAME: value")
    return text


def _json_mapping(value: object) -> object:
    if not isinstance(value, Mapping):
        raise wrong(f"must be a mapping, not {shown(value)}")
    if not _is_json(value):
        raise wrong("holds NaN or an infinity, which JSON cannot carry")
    return value


def _is_json(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_is_json(part) for part in value.values())
    if isinstance(value, list | tuple):
        return all(_is_json(part) for part in value)
    return not isinstance(value, float) or math.isfinite(value)


Number = Annotated[float, BeforeValidator(_number)]
Positive = Annotated[float, Field(gt=0), BeforeValidator(_number)]
NonNegative = Annotated[float, Field(ge=0), BeforeValidator(_number)]
AboveOne = Annotated[float, Field(gt=1), BeforeValidator(_number)]
BelowOne = Annotated[float, Field(gt=0, lt=1), BeforeValidator(_number)]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(_number)]
Percent = Annotated[float, Field(ge=0, le=100), BeforeValidator(_number)]
Hertz = Annotated[float, Field(gt=0, le=1000), BeforeValidator(_number)]
Count = Annotated[int, Field(ge=1), BeforeValidator(whole_number)]
CountOrZero = Annotated[int, Field(ge=0), BeforeValidator(whole_number)]
Integer = Annotated[int, BeforeValidator(whole_number)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Text = Annotated[str, BeforeValidator(_text)]
Filled = Annotated[str, BeforeValidator(_filled)]
Name = Annotated[str, Field(pattern=f"^{_NAME.pattern}$"), BeforeValidator(_name)]
Variable = Annotated[str, Field(pattern=f"^{_VARIABLE.pattern}$"), BeforeValidator(_variable)]
Endpoint = Annotated[str, BeforeValidator(_endpoint)]
Url = Annotated[str, BeforeValidator(_url)]
Word = str | float | bool
EnvValue = Annotated[str | None, BeforeValidator(_env_value, json_schema_input_type=Word | None)]
Argv = Annotated[tuple[str, ...], BeforeValidator(_argv, json_schema_input_type=list[Word])]
Command = Annotated[tuple[str, ...], BeforeValidator(_command, json_schema_input_type=list[Word])]
Commands = Annotated[
    tuple[tuple[str, ...], ...], BeforeValidator(_commands, json_schema_input_type=list[Word] | list[list[Word]])
]
Logs = Annotated[tuple[str, ...] | str, BeforeValidator(_logs, json_schema_input_type=list[Word] | str)]
JsonMapping = Annotated[dict[str, Any], BeforeValidator(_json_mapping)]
