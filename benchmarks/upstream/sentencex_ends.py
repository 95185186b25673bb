"""sentencex: no end in front of a number, a panic at some spaces, and quadratic time. For a report upstream.

    python benchmarks/upstream/sentencex_ends.py

Needs nothing but sentencex. Each line says what was expected and what came.
"""

from __future__ import annotations

import time
from importlib.metadata import version

from sentencex import get_sentence_boundaries


def ends(language: str, text: str) -> list[str]:
    return [sentence["text"] for sentence in get_sentence_boundaries(language, text)]


def main() -> None:
    print(f"sentencex {version('sentencex')}")
    text = "他來了。1991年他走了。"
    print(f"1. {text!r}: 2 sentences expected, {len(ends('zh', text))} found: {ends('zh', text)}")
    try:
        print(f"2. a line separator in front of an initial: no error, {ends('en', 'A' + chr(0x2028) + '. B')}")
    except BaseException as error:  # a panic of Rust is no Exception
        print(f"2. a line separator in front of an initial: {type(error).__name__}: {error}")
    for count in (10_000, 20_000, 40_000):
        began = time.perf_counter()
        ends("zh", "「他。" * count)
        print(f"3. {count:,} quotation marks that nothing closes: {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
