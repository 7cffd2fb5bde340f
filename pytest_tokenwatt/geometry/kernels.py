"""In how many bits the kernels that a start-up log names take activations.

Engines fall back: on a GPU without FP8 arithmetic the weights stay in 8 bits, and what enters them in the model's type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from pytest_tokenwatt.geometry.engine_words import LOG
from pytest_tokenwatt.geometry.widths import Reading


class Takes(Enum):
    """What a kernel does with activations."""

    OWN = "in the model's own type"
    DECLARED = "as the checkpoint says"
    EIGHT = "in 8 bits"
    FOUR = "in 4 bits"
    EMULATED = "rounded to fewer bits and computed in more"
    UNCLEAR = "in a number of bits that is not known"


@dataclass(frozen=True, slots=True)
class Kernel:
    """``weights`` are bits of the weights that it is for; ``unpacks``: it may hold them in 16 bits."""

    name: str
    weights: float
    takes: Takes
    unpacks: bool = False


_NATIVE = r"(?:Aiter|B12x|CPU|Cutlass|DeepGemm|Fbgemm|FlashInfer|ROCm|Rocm|Triton|XPU|Zentorch|\w*Torch)\w*"
# The first that matches a whole name. Names are those of vLLM's classes, and of its backends for mixtures of experts.
_RULES: tuple[tuple[str, float, Takes], ...] = (
    (r"weight-only FP8|MXFP8 experts held as BF16", 8, Takes.OWN),
    (r"weight-only FP4|MXFP4 experts with BF16 activations", 4, Takes.OWN),
    (r"EmulationMxfp8LinearKernel", 8, Takes.OWN),
    (r"Emulation(?:NvFp4|Mxfp4)LinearKernel", 4, Takes.EMULATED),
    (r"Marlin(?:FP8ScaledMM|Mxfp8)LinearKernel|XPUW8A16FP8LinearKernel", 8, Takes.OWN),
    (r"CPUFp8(?:Block|PerTensor)ScaledMM(?:Linear)?Kernel", 8, Takes.OWN),
    (r"Marlin(?:NvFp4|MxFp4)LinearKernel|\w+NvFp4W4A16LinearKernel", 4, Takes.OWN),
    (r"CPUFp8W8A8BlockScaledMMKernel|Humming(?:FP8ScaledMM|Int8ScaledMM|Mxfp8)LinearKernel", 8, Takes.UNCLEAR),
    (r"Humming(?:NvFp4|MxFp4)LinearKernel", 4, Takes.UNCLEAR),
    (_NATIVE + r"(?:FP8|Fp8|Mxfp8|MxFp8|Int8)\w*Kernel", 8, Takes.DECLARED),
    (_NATIVE + r"(?:NvFp4|Mxfp4|MxFp4)\w*Kernel", 4, Takes.DECLARED),
    (r"NvFp4LinearBackend\.\w*MARLIN", 4, Takes.OWN),
    (r"NvFp4LinearBackend\.\w*EMULATION", 4, Takes.EMULATED),
    (r"NvFp4LinearBackend\.\w+", 4, Takes.DECLARED),
    (r"Marlin backend for FP8 MoE|(?:BATCHED_)?MARLIN backend for FP8 MoE", 8, Takes.OWN),
    (r"[\w ]+ backend for FP8 MoE", 8, Takes.DECLARED),
    (r"(?:(?:BATCHED_)?MARLIN|CPU|EMULATION) (?:Fp8|MxFp8) MoE backend", 8, Takes.OWN),
    (r"(?:HUMMING|XPU|CPU) (?:Fp8|MxFp8|Int8) MoE backend", 8, Takes.UNCLEAR),
    (r"\w+ (?:Fp8|MxFp8|Int8) MoE backend", 8, Takes.DECLARED),
    (r"MARLIN NvFp4 MoE backend", 4, Takes.OWN),
    (r"EMULATION (?:NvFp4|Mxfp4) MoE backend", 4, Takes.EMULATED),
    (r"HUMMING NvFp4 MoE backend", 4, Takes.UNCLEAR),
    (r"\w+ NvFp4 MoE backend", 4, Takes.DECLARED),
    (r"(?:\w+_BF16|(?:BATCHED_)?MARLIN|TRITON(?:_UNFUSED)?) Mxfp4 MoE backend|MarlinExperts MXFP4 MoE", 4, Takes.OWN),
    (r"(?:\w+_MXFP8|\w+_FP8|DEEPGEMM_MXFP4) Mxfp4 MoE backend", 4, Takes.EIGHT),
    (r"\w+_MXFP4 Mxfp4 MoE backend|CutlassExpertsMxfp4 MXFP4 MoE", 4, Takes.FOUR),
    (r"\w+ (?:Mxfp4 MoE backend|MXFP4 MoE)", 4, Takes.UNCLEAR),
)
_FORMS = tuple((re.compile(form, re.ASCII), bits, takes) for form, bits, takes in _RULES)
_UNPACKING = ("EmulationMxfp8LinearKernel", "MXFP8 experts held as BF16")
_UNKNOWN = (Takes.EMULATED, Takes.UNCLEAR)


def known_kernels(names: Iterable[str]) -> tuple[Kernel, ...]:
    """Those of the names that a log gives of which something is known."""
    return tuple(kernel for name in names if (kernel := _known(name)) is not None)


def _known(name: str) -> Kernel | None:
    for form, bits, takes in _FORMS:
        if form.fullmatch(name):
            return Kernel(name, bits, takes, unpacks=name in _UNPACKING)
    return None


def entering(kernels: Sequence[Kernel], declared: Reading, dtype: Reading) -> Reading:
    """Bits of activations by the kernels for one width of weights, of which there is at least one.

    ``declared`` is what checkpoint or settings say, ``dtype`` the model's own type. Where the kernels differ, or what
    one of them does is not known, there is no figure.
    """
    unknown = [kernel for kernel in kernels if kernel.takes in _UNKNOWN]
    if unknown:
        return Reading(None, f"the {LOG} names {unknown[0].name}, which takes activations {unknown[0].takes.value}")
    read = {kernel.name: _bits(kernel.takes, declared, dtype) for kernel in kernels}
    lacking = next((reading for reading in read.values() if reading.bits is None), None)
    if lacking is not None:
        return lacking
    if len({reading.bits for reading in read.values()}) > 1:
        told = ", ".join(f"{name} takes them in {reading.bits:g} bits" for name, reading in read.items())
        return Reading(None, f"the {LOG} names kernels that take activations differently: {told}")
    bits = next(iter(read.values())).bits
    return declared if bits == declared.bits else Reading(bits, f"{LOG} ({', '.join(read)})")


def _bits(takes: Takes, declared: Reading, dtype: Reading) -> Reading:
    fixed = {Takes.EIGHT: 8.0, Takes.FOUR: 4.0}
    if takes in fixed:
        return Reading(fixed[takes], LOG)
    return dtype if takes is Takes.OWN else declared
