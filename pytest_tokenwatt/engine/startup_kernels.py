"""How vLLM's start-up log names what computes quantised layers, in the forms that its versions have used."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NAMED = (
    r"\b(?:Selected|Using) (\w{1,80}Kernel) for \w",
    r"\bUsing (NvFp4LinearBackend\.\w{1,40}) for NVFP4 GEMM\b",
    r"\bUsing (\w[\w ]{0,60}? backend for FP8 MoE)\b",
    r"\bUsing '?(\w{1,60}?)'? ((?:Fp8|MxFp8|Int8|NvFp4|Mxfp4) MoE backend)\b",
    r"\bUsing (\w{0,60}Experts\w{0,40})(?: \([^)]{1,40}\))? for (?:AutoRound )?(MXFP4 MoE)\b",
)
_SAID = {
    r"\b[Ww]eight-only FP8 compression will be used": "weight-only FP8",
    r"\b[Ww]eight-only FP4 (?:compression will be used|via the Marlin kernel)": "weight-only FP4",
    r"\bMxfp4 MoE backend supports activation=.{1,200} with BF16 activations": "MXFP4 experts with BF16 activations",
    r"\bMXFP8->BF16 load-time dequant complete": "MXFP8 experts held as BF16",
}
_NAME_FORMS = tuple(re.compile(form, re.ASCII) for form in _NAMED)
_SAID_FORMS = tuple((re.compile(form), words) for form, words in _SAID.items())
HINT = r"Kernel for|for NVFP4 GEMM|MoE|eight-only FP"
"""One of these stands in every line that ``kernels_of`` reads."""


def kernels_of(line: str) -> Iterator[str]:
    """What a line names: a kernel's class, ``MARLIN Fp8 MoE backend``, or a fall-back such as ``weight-only FP8``."""
    for form in _NAME_FORMS:
        for match in form.finditer(line):
            yield " ".join(match.groups())
    for form, words in _SAID_FORMS:
        if form.search(line):
            yield words
