"""Text that onnxruntime-genai continues from a float folder and from a quantized one: equal up to which token?

    pip install onnxruntime-genai
    python -m benchmarks.generation smollm2/ small/

Ten prompts are continued by 40 tokens each, greedily. `quaver tune smollm2/ ... -o small/` writes the second folder.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import onnxruntime_genai as genai

from benchmarks import result_files

TOKENS = 40
PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    ",
    "Once upon a time there was a king who",
    "The three primary colors are",
    "To bake bread you need flour,",
    "The theory of relativity says that",
    "Dear Sir or Madam,\nI am writing to",
    "1, 2, 3, 4, 5,",
    "The film was a disappointment, because",
)


def continued(folder: Path) -> tuple[list[list[int]], list[str], float]:
    """Return the tokens and the text behind each prompt, and the processor seconds of a token."""
    model = genai.Model(str(folder))
    tokenizer = genai.Tokenizer(model)
    tokens, texts, seconds = [], [], 0.0
    for prompt in PROMPTS:
        start = tokenizer.encode(prompt)
        params = genai.GeneratorParams(model)
        length = len(start) + TOKENS
        params.set_search_options(max_length=length, min_length=length, do_sample=False)
        generator = genai.Generator(model, params)
        generator.append_tokens(start)
        began = time.process_time()
        while not generator.is_done():
            generator.generate_next_token()
        seconds += time.process_time() - began
        tokens.append([int(token) for token in generator.get_sequence(0)[len(start) :]])
        texts.append(tokenizer.decode(tokens[-1]))
    return tokens, texts, seconds / (TOKENS * len(PROMPTS))


def equal_tokens(first: list[int], second: list[int]) -> int:
    """Return the number of tokens up to the first difference."""
    return next((at for at, (a, b) in enumerate(zip(first, second, strict=True)) if a != b), len(first))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("float", type=Path)
    parser.add_argument("quantized", type=Path)
    options = parser.parse_args()
    (expected, float_texts, float_seconds), (actual, texts, seconds) = map(
        continued, (options.float, options.quantized)
    )
    rows: list[dict[str, Any]] = [
        {"prompt": prompt, "equal_tokens": equal_tokens(first, second), "float": float_text, "quantized": text}
        for prompt, first, second, float_text, text in zip(PROMPTS, expected, actual, float_texts, texts, strict=True)
    ]
    print(*rows, sep="\n")
    title = "Text continued by onnxruntime-genai, 40 tokens: tokens up to the first difference to the float model"
    result_files.write("generation", title, rows, packages=["onnxruntime-genai"], token_time=seconds / float_seconds)


if __name__ == "__main__":
    main()
