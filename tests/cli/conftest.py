"""Files that no command should be given, and a few good ones beside them."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import copies, indexes, tiny

import evenspan

GARBAGE = bytes(range(256)) * 8
SQUAD: dict[str, Any] = {
    "id": "q1", "question": "w1?", "answers": [{"text": "w2", "answer_start": 3}], "is_impossible": False,
}  # fmt: skip


@pytest.fixture(scope="session")
def materials(tmp_path_factory) -> Path:
    """Made once: a tiny model, a corpus, a benchmark and an index that are whole, and many things that are not."""
    folder = tmp_path_factory.mktemp("materials")
    indexes.saved_model(folder)
    indexes.write_jsonl(folder / "corpus.jsonl", indexes.rows(12))
    copies.directory(folder / "beir")
    model = evenspan.load(str(folder / "model"), device="cpu")
    evenspan.index(model, indexes.rows(6), f"parquet:{folder / 'index'}", progress=False)
    (folder / "folder").mkdir()
    for name, content in _contents().items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    _beir(folder)
    _models(folder)
    _indexes(folder)
    return folder


def _contents() -> dict[str, Any]:
    lines = [json.dumps({"id": "a", "text": "w1"}).encode(), b"oops"]
    return {
        **{f"empty.{ending}": b"" for ending in ("jsonl", "json", "txt", "csv", "tsv", "parquet", "jsonl.gz", "html")},
        **{f"garbage.{ending}": GARBAGE for ending in ("bin", "jsonl", "json", "txt", "csv", "parquet", "zst", "gz")},
        **{f"garbage.jsonl.{ending}": GARBAGE for ending in ("gz", "zst")},
        "cut.jsonl.gz": gzip.compress(b'{"text": "w1 w2", "id": "a"}\n' * 1000)[:60],
        "latin1.txt": "Äpfel".encode("latin-1"),
        "latin1.jsonl": '{"id": "a", "text": "Äpfel"}\n'.encode("latin-1"),
        "utf16.jsonl": '{"id": "a", "text": "w1"}\n'.encode("utf-16"),
        "half.jsonl": b"\n".join(lines * 10),
        "no_text.jsonl": b'{"id": "a", "body": "w1", "other": "w2"}\n' * 3,
        "no_id.jsonl": b'{"key": "a", "text": "w1"}\n' * 3,
        "numbers.jsonl": b"1\n2\n3\n",
        "unnamed": b"w1 w2",
        "list.json": [], "null.json": None, "number.json": 5, "string.json": "text", "object.json": {},
        "deep.json": b"[" * 100_000,
        "audit_broken.json": {"kind": "evenspan audit", "model": 5},
        "result_broken.json": {"benchmark": 1, "method": 2, "groups": 3, "ndcg": 4, "setting": 5},
        "grid.bin": GARBAGE,
        "grid.latin1": "soft # Ä".encode("latin-1"),
        "grid.utf16": "soft".encode("utf-16"),
        "grid.empty": b"",
        "grid.comments": b"# nothing\n\n# here\n",
        "grid.bad": b"soft\nsofter\n",
        "grid.broken.json": b'["soft", ',
        "grid.object.json": {"soft": 1},
        "grid.numbers.json": [1, 2],
        "grid.null.json": [None],
        "grid.unknown.json": [{"variant": "soft", "colour": "red"}],
        "grid.wrong.json": [{"variant": "soft", "strength": "much"}],
        "grid.nested.json": [["soft"]],
        "squad_no_qas.json": _squad({"context": "w1 w2"}),
        "squad_no_context.json": _squad({"qas": [SQUAD]}),
        "squad_no_start.json": _squad({"context": "w1 w2", "qas": [{**SQUAD, "answers": [{"text": "w2"}]}]}),
        "squad_no_id.json": _squad({"context": "w1 w2", "qas": [{"question": "?", "answers": SQUAD["answers"]}]}),
        "squad_bad_span.json": _squad({"context": "w1", "qas": [SQUAD]}),
        "squad_no_answers.json": _squad({"context": "w1 w2", "qas": [{**SQUAD, "answers": []}]}),
        "squad_twice.json": _squad({"context": "w1 w2", "qas": [SQUAD, SQUAD]}),
        "squad_text_context.json": _squad({"context": 5, "qas": [SQUAD]}),
        "squad_no_paragraphs.json": {"data": [{"title": "T"}]},
        "squad_articles.json": {"data": {"a": 1}},
        "squad_strings.json": {"data": ["a", "b"]},
        "squad_null.json": {"data": None},
    }  # fmt: skip


def _squad(paragraph: dict[str, Any]) -> dict[str, Any]:
    return {"data": [{"title": "T", "paragraphs": [paragraph]}]}


def _changed_copies(original: Path, changes: dict[str, tuple[Path | str, bytes | None]]) -> None:
    """Copies of a folder beside it, each with one file of another content, or without it."""
    for name, (file, content) in changes.items():
        target = shutil.copytree(original, original.with_name(f"{original.name}_{name}")) / file
        target.unlink() if content is None else target.write_bytes(content)


def _beir(folder: Path) -> None:
    """Copies of the benchmark, each with one file that is not as it should be."""
    qrels = next((folder / "beir").rglob("*.tsv")).relative_to(folder / "beir")
    changes: dict[str, tuple[Path | str, bytes | None]] = {
        "no_qrels": (qrels, None),
        "garbage_qrels": (qrels, GARBAGE),
        "bad_qrels": (qrels, b"a\tb\tc\td\te\n"),
        "no_corpus": ("corpus.jsonl", None),
        "no_queries": ("queries.jsonl", None),
        "empty_corpus": ("corpus.jsonl", b""),
        "empty_queries": ("queries.jsonl", b""),
        "garbage_corpus": ("corpus.jsonl", GARBAGE),
        "garbage_queries": ("queries.jsonl", GARBAGE),
        "no_json": ("corpus.jsonl", b"{oops\n"),
        "no_object": ("corpus.jsonl", b"[1, 2]\n"),
        "no_id": ("corpus.jsonl", b'{"text": "w1"}\n'),
        "twice": ("corpus.jsonl", b'{"_id": "a", "text": "w1"}\n' * 2),
        "number_text": ("corpus.jsonl", b'{"_id": "a", "text": 5}\n'),
    }
    _changed_copies(folder / "beir", changes)


def _models(folder: Path) -> None:
    """Copies of the model, each with one file that is not as it should be."""
    weights = (folder / "model" / "model.safetensors").read_bytes()
    changes: dict[str, tuple[Path | str, bytes | None]] = {
        "cut_weights": ("model.safetensors", weights[: len(weights) // 2]),
        "empty_weights": ("model.safetensors", b""),
        "garbage_weights": ("model.safetensors", GARBAGE),
        "no_weights": ("model.safetensors", None),
        "broken_config": ("config.json", b"{oops"),
        "list_config": ("config.json", b"[]"),
        "empty_config": ("config.json", b""),
        "garbage_config": ("config.json", GARBAGE),
        "unknown_type": ("config.json", b'{"model_type": "no_such_model"}'),
        "no_type": ("config.json", b"{}"),
        "no_path": ("modules.json", b'[{"idx": 0, "name": "0"}]'),
        "no_class": ("modules.json", b'[{"idx": 0, "name": "0", "path": ""}]'),
        "object_modules": ("modules.json", b"{}"),
        "empty_modules": ("modules.json", b"[]"),
        "broken_modules": ("modules.json", b"["),
        "foreign_class": ("modules.json", b'[{"idx": 0, "name": "0", "path": "", "type": "os.path.join"}]'),
        "no_pooling": ("1_Pooling/config.json", None),
        "broken_pooling": ("1_Pooling/config.json", b"{"),
        "broken_tokenizer": ("tokenizer.json", b"{oops"),
        "no_tokenizer": ("tokenizer.json", None),
        "other_kind": ("config_sentence_transformers.json", b'{"model_type": "SparseEncoder"}'),
        "broken_st_config": ("config_sentence_transformers.json", b"{"),
    }
    _changed_copies(folder / "model", changes)
    (folder / "model_pickled").mkdir()
    (folder / "model_pickled" / "pytorch_model.bin").write_bytes(GARBAGE)
    calibrated = evenspan.calibrate(evenspan.load(str(folder / "model"), device="cpu"))
    for name, content in {"broken": b"{", "unknown": b'{"calibration": {"colour": 1}}', "empty": b"{}"}.items():
        calibrated.save_pretrained(str(folder / f"calibrated_{name}"))
        next((folder / f"calibrated_{name}").rglob("evenspan.json")).write_bytes(content)
    mean = tiny.sentence_transformer("gemma2-lasttoken", folder / "mean_base", pooling="mean")
    mean.save_pretrained(str(folder / "causal_mean"))


def _indexes(folder: Path) -> None:
    for name in ("garbage", "empty"):
        shutil.copytree(folder / "index", folder / f"index_{name}")
        (folder / f"index_{name}" / "_manifest.sqlite").write_bytes(GARBAGE if name == "garbage" else b"")
    shutil.copytree(folder / "index", folder / "index_cut")
    for shard in (folder / "index_cut").glob("shard-*.parquet"):
        shard.write_bytes(shard.read_bytes()[:40])
