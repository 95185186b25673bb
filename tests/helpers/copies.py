"""Small local copies of the hub's data sets, in their own layout and schema, oddities included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def fineweb_posq(folder: Path) -> Path:
    """Two tags, a corpus-only row, a repeated question, a repeated passage, old names of the tags."""
    rows = [
        {"question": "early?", "content": "alpha beta", "span_class": ["beginning"]},
        {"question": "both?", "content": "alpha beta", "span_class": ["middle", "end"]},
        {"question": "", "content": "only corpus", "span_class": []},
        {"question": "twice?", "content": "alpha beta", "span_class": ["beginning"]},
        {"question": "twice?", "content": "gamma delta", "span_class": ["end"]},
        {"question": "old?", "content": "aardvark", "span_class": ["before"]},
        {"question": "older?", "content": "gamma delta", "span_class": ["after"]},
    ]
    write(folder / "data" / "train-00000-of-00001.parquet", rows)
    return folder


def squad_v2(folder: Path) -> Path:
    """Unanswerable questions, answers at the edges of the bins, a context in both splits."""

    def row(name: str, context: str, starts: list[int]) -> dict[str, Any]:
        answers = {"text": ["a"] * len(starts), "answer_start": starts}
        return {"id": name, "title": "T", "context": context, "question": f"{name}?", "answers": answers}

    long, other = "x" * 700, "y" * 300
    train = [row(f"t{start}", long, [start]) for start in (0, 100, 250, 300, 450, 500, 650)] + [row("none", other, [])]
    write(folder / "data" / "train-00000-of-00001.parquet", train)
    write(folder / "data" / "validation-00000-of-00001.parquet", [row("v", other, [199, 5]), row("w", long, [3])])
    return folder


def posir(folder: Path) -> Path:
    """Two languages and two domains; spans at the edges of bins and length buckets."""
    for language in ("eng-Latn", "deu-Latn"):
        for domain in ("law", "medicine"):
            here = folder / language / domain
            corpus = [
                {"_id": f"d{number}", "text": f"{language} {domain} w{number} w{number + 1}"} for number in range(6)
            ]
            write(here / "corpus.parquet", corpus)
            spans = [([0, 0], 100, 512), ([0, 10], 100, 513), ([90, 110], 100, 1536), ([49, 51], 100, 1537)]
            queries = [
                {
                    "_id": f"q{number}",
                    "text": f"w{number}",
                    "pos_char_span": span,
                    "pos_char_length": length,
                    "pos_token_length": tokens,
                }
                for number, (span, length, tokens) in enumerate(spans)
            ]
            write(here / "queries.parquet", queries)
            qrels = [{"query-id": f"q{number}", "corpus-id": f"d{number}", "score": 1} for number in range(4)]
            write(here / "qrels" / "test.parquet", qrels)
    return folder


def nanobeir(folder: Path, sets: tuple[str, ...] = ("ArguAna", "NFCorpus"), listed: bool = False) -> Path:
    """Relevant documents as one id a row, or with `listed` as lists; a query without any."""
    configs = []
    for config in ("corpus", "queries", "qrels"):
        files = [{"split": f"Nano{name}", "path": f"{config}/Nano{name}-*.parquet"} for name in sets]
        configs.append({"config_name": config, "data_files": files})
    for name in sets:
        file = f"Nano{name}-00000-of-00001.parquet"
        texts = [f"w{number} is first. Then w{number + 7} follows! And w{number + 9}?" for number in range(8)]
        write(folder / "corpus" / file, [{"_id": f"d{number}", "text": text} for number, text in enumerate(texts)])
        write(folder / "queries" / file, [{"_id": f"q{number}", "text": f"w{number}"} for number in range(5)])
        if listed:
            qrels: list[dict[str, Any]] = [
                {"query-id": f"q{number}", "corpus-id": [f"d{number}", "d7"]} for number in range(4)
            ]
        else:
            qrels = [{"query-id": f"q{number}", "corpus-id": f"d{number}"} for number in range(4)]
        write(folder / "qrels" / file, qrels)
    # As `push_to_hub` writes it: the card says which files belong to which config and split.
    (folder / "README.md").write_text(f"---\nconfigs: {json.dumps(configs)}\n---\n")
    return folder


def directory(folder: Path, documents: int = 12, words: int = 60) -> Path:
    """A folder in BEIR layout with three queries for each document, one in each third."""
    from helpers import tiny

    folder.mkdir(parents=True)
    corpus, queries, qrels = [], [], ["query-id\tcorpus-id\tscore"]
    for number in range(documents):
        text = tiny.text(words, seed=number)
        corpus.append({"_id": f"d{number}", "title": f"w{number}", "text": text})
        parts = text.split()
        for third in range(3):
            place = third * words // 3 + words // 8  # well inside the third
            start = len(" ".join(parts[:place])) + 1
            span = " ".join(parts[place : place + 6])
            assert text[start : start + len(span)] == span
            queries.append({"_id": f"q{number}-{third}", "text": span, "pos_char_span": [start, start + len(span)]})
            qrels.append(f"q{number}-{third}\td{number}\t1")
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels.tsv").write_text("\n".join(qrels) + "\n")
    return folder
