"""Build the tiny model that the real-vLLM tests and ``specs/vllm-cpu.yaml`` serve.

Why it exists: a test of this plugin against the real engine needs a checkpoint, and a test machine has no model hub.
This script writes one in a second or two: a randomly initialised Qwen3 of about 0.6 M parameters with a byte-level
tokenizer and a chat template. Its text means nothing and its accuracy is zero, but everything the plugin measures about
an *engine* is real: scheduling, batching, paging of the KV cache, streaming, usage, log-probabilities, metrics.

What the shape is chosen for:

* grouped-query attention (4 query heads over 2 KV heads), so that KV geometry is not trivially the hidden size;
* ``head_dim`` 64, which vLLM's CPU attention supports with a BF16 and with an FP8 KV cache;
* query and key norms away from one, so that attention is sharp and an 8-bit KV cache visibly changes the logits;
* one id for each byte and no merges, so that any id below ``vocab_size`` is a valid prompt token and text survives a
  round trip; ids 0-3 are the special tokens;
* ``<|im_end|>`` is the end of sequence, as in Qwen3, but a random model hardly ever emits it: lengths come from
  ``max_tokens``.

Use: ``python build_model.py OUT_DIR`` with the interpreter of the environment that ``install.sh`` made. The same recipe
gives the same bytes; a directory that already holds this recipe is left untouched.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

SEED = 20260731
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>")
CONFIG: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "rope_theta": 10_000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
}
GAINS = {"q_norm": 2.0, "k_norm": 2.0, "embed_tokens": 1.0, "lm_head": 0.25}
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RECIPE_FILE = "recipe.json"


def recipe_hash() -> str:
    """Return the hash of everything that decides the checkpoint: this file, since the recipe is this file."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def is_built(out: Path) -> bool:
    """Tell whether `out` already holds a complete checkpoint of this recipe (the recipe file is written last)."""
    try:
        return bool(json.loads((out / RECIPE_FILE).read_text(encoding="utf-8"))["sha256"] == recipe_hash())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_tokenizer(out: Path) -> int:
    """Write a byte-level tokenizer without merges and return the size of its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *alphabet])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        additional_special_tokens=list(SPECIAL_TOKENS[:2]),
        clean_up_tokenization_spaces=False,
        model_max_length=CONFIG["max_position_embeddings"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(out)
    return len(vocab)


def write_weights(out: Path, vocab_size: int) -> int:
    """Write the configuration and seeded random BF16 weights; return the number of parameters."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    ends = {"eos_token_id": SPECIAL_TOKENS.index("<|im_end|>"), "pad_token_id": SPECIAL_TOKENS.index("<|pad|>")}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=vocab_size, bos_token_id=None, **ends, **CONFIG))
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            gain = next((value for key, value in GAINS.items() if key in name), 1.0)
            if parameter.ndim == 1:
                parameter.fill_(gain)
            else:
                scale = gain if "embed_tokens" in name else gain / math.sqrt(parameter.shape[1])
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    model.to(torch.bfloat16).save_pretrained(out, safe_serialization=True)
    return sum(parameter.numel() for parameter in model.parameters())


def build(out: Path) -> int:
    """Write the checkpoint to `out`, replacing what is there, and return the number of parameters.

    It is put together beside `out` and moved into place, so that an interrupted build is never served.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        staging = Path(scratch) / "model"
        staging.mkdir()
        parameters = write_weights(staging, write_tokenizer(staging))
        recipe = {"sha256": recipe_hash(), "seed": SEED, "parameters": parameters}
        (staging / RECIPE_FILE).write_text(json.dumps(recipe, indent=1) + "\n", encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        staging.rename(out)
    return parameters


def main(argv: list[str]) -> int:
    """Build the model at the one argument, unless it is there already."""
    if len(argv) != 1:
        print("usage: build_model.py OUT_DIR", file=sys.stderr)
        return 2
    out = Path(argv[0]).resolve()
    if out.exists() and not (out / RECIPE_FILE).exists() and any(out.iterdir()):
        print(f"build_model.py: {out} exists and is not a model of ours; remove it or name another", file=sys.stderr)
        return 1
    if is_built(out):
        print(f"{out}: up to date")
    else:
        print(f"{out}: {build(out) / 1e6:.2f} M parameters")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
