"""From texts to vectors on a GPU, as multiples of the bare forward passes over ready token batches.

    python benchmarks/encode_stream.py [SECTION ...] [--output benchmarks/results/encode_stream_h200.json]

Random weights, float16, made-up English-like documents and a WordPiece tokenizer that is trained on them. Sections:

main       24 × 1,024, 12 × 768 and 6 × 384, first-token pooling: `encode_documents` and the model's own `encode_document`,
           plain and calibrated, against sentence-transformers' own and against what the tokenizer takes by itself
lengths    the large shape with documents of 60, 500 and 4,000 tokens on average
qwen       the shape of Qwen3-0.6B, last-token pooling
index      `evenspan.index` into Parquet
cold       `encode_documents` in a fresh process with an empty cache of kernels, and how many of them that process compiles,
           for these documents and then for some of all lengths
memory     a million short texts: memory of host and device along the way
processes  two processes on one GPU
ray        `evenspan.index` with one worker of Ray against one process, in the steady state, if Ray is there
cpu        the first-token miniature on a CPU, against sentence-transformers' own `encode_document`; only if it is named

Everything is measured in one run and written as it goes. `--smoke` takes tiny shapes and a CPU, to see that it runs.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import BertWordPieceTokenizer

import evenspan
from evenspan.models.batches import plan_batches
from evenspan.models.standard import text_features

BARE_TOKENS = 32_768
SECTIONS = ("main", "index", "cold", "memory", "lengths", "qwen", "processes", "ray")
FEWER = 3  # sentence-transformers itself gets every third of the documents: it takes a multiple of the time
TURNS = 5  # the documents over again, for Ray
SHAPES: dict[str, dict[str, Any]] = {
    "24 x 1,024": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    "12 x 768": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "6 x 384": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
}
QWEN = {
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
}
SMOKE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


class Words:
    """Made-up words, common and rare ones, as in a language."""

    def __init__(self) -> None:
        self.rng = random.Random(5)
        starts, middles, ends = (
            ("b", "d", "gr", "k", "l", "m", "pl", "s", "st", "t", "v"),
            "aeiou",
            ("", "n", "r", "st", "ing"),
        )
        syllables = [start + middle + end for start in starts for middle in middles for end in ends]
        self.words = ["".join(self.rng.choices(syllables, k=self.rng.randint(1, 3))) for _ in range(20_000)]
        self.weights = np.cumsum(1 / np.arange(2, len(self.words) + 2)).tolist()

    def text(self, words: int) -> str:
        """A document of so many words."""
        return " ".join(self.rng.choices(self.words, cum_weights=self.weights, k=max(1, words))) + "."

    def texts(self, number: int, average: float) -> list[str]:
        """Documents of an average number of words, between a third and five thirds of it."""
        return [self.text(round(self.rng.uniform(average / 3, 5 * average / 3))) for _ in range(number)]


class Run:
    """One run: what it measures, and where it writes that down."""

    def __init__(self, output: Path | None, *, smoke: bool) -> None:
        self.output, self.smoke = output, smoke
        self.device = "cpu" if smoke else "cuda"
        self.words, self.results = Words(), {}
        self.models: dict[str, SentenceTransformer] = {}
        self.passes: list[tuple[str, list[str], float]] = []
        trainer = BertWordPieceTokenizer()
        trainer.train_from_iterator(self.words.texts(50 if smoke else 400, 500), vocab_size=8000, show_progress=False)
        self.tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=trainer._tokenizer,
            **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
            model_max_length=8192,
            model_input_names=["input_ids", "attention_mask"],
        )
        backend = self.tokenizer.backend_tokenizer
        special = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
        from tokenizers.processors import TemplateProcessing

        backend.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
        (sample,) = backend.encode_batch([self.words.text(50_000)])
        self.tokens_per_word = len(sample) / 50_000

    def texts(self, number: int, tokens: int) -> list[str]:
        """Documents of an average number of tokens, special ones included."""
        return self.words.texts(number, (tokens - 2) / self.tokens_per_word)

    def model(self, shape: str) -> SentenceTransformer:
        """A random model of a shape, plain."""
        if shape not in self.models:
            self.models[shape] = self._made(shape)
        return evenspan.restore(self.models[shape])

    def bare(self, shape: str, texts: list[str]) -> float:
        """The forward passes alone over these texts, measured once."""
        for known, same, taken in self.passes:
            if known == shape and same is texts:
                return taken
        model = self.model(shape)
        taken = bare(model, text_features(model, "document", "").tokenize(texts).ids)
        self.passes.append((shape, texts, taken))
        return taken

    def _made(self, shape: str) -> SentenceTransformer:
        torch.manual_seed(0)
        sizes = QWEN if shape == "Qwen3-0.6B" else SHAPES[shape]
        if self.smoke:
            sizes = {**SMOKE, **({"num_key_value_heads": 1, "head_dim": 16} if sizes is QWEN else {})}
        kind, pooling = ("Qwen3Config", "lasttoken") if shape == "Qwen3-0.6B" else ("BertConfig", "cls")
        common = {"vocab_size": 8000, "max_position_embeddings": 8192, "pad_token_id": 0}
        config = getattr(transformers, kind)(**common, **sizes)
        dtype = torch.float32 if self.smoke else torch.float16
        with tempfile.TemporaryDirectory() as folder:
            transformers.AutoModel.from_config(config).to(dtype).save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            transformer = Transformer(folder, model_kwargs={"dtype": dtype, "attn_implementation": "sdpa"})
        transformer.processor = self.tokenizer
        return SentenceTransformer(
            modules=[transformer, Pooling(sizes["hidden_size"], pooling)], device=self.device
        ).eval()

    def note(self, section: str, **figures: Any) -> None:
        """Print figures, and write all there are so far."""
        self.results.setdefault(section, []).append(figures)
        print(section, json.dumps(figures), flush=True)
        if self.output:
            self.output.parent.mkdir(parents=True, exist_ok=True)
            self.output.write_text(json.dumps(self.results, indent=2) + "\n", encoding="utf-8")


def sync() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """The shortest of some runs."""
    taken = []
    for _ in range(times):
        sync()
        began = time.perf_counter()
        work()
        sync()
        taken.append(time.perf_counter() - began)
    return min(taken)


def bare(model: SentenceTransformer, ids: Sequence[np.ndarray]) -> float:
    """The forward passes alone, over padded batches that are on the device already."""
    features = text_features(model, "document", "")
    batches = []
    for places in plan_batches([len(own) for own in ids], BARE_TOKENS):
        made = features.batch([ids[place] for place in places])
        batches.append({name: made[name].to(model.device) for name in ("input_ids", "attention_mask")})
    transformer = model[0].auto_model

    @torch.inference_mode()
    def passes() -> None:
        for batch in batches:
            transformer(**batch)

    return seconds(passes, 3)


def measure(run: Run, section: str, shape: str, texts: list[str], *, own: bool = True, **more: Any) -> None:
    """Plain and calibrated, side by side."""
    model = run.model(shape)
    features = text_features(model, "document", "")
    tokenized = features.tokenize(texts)
    base = run.bare(shape, texts)
    figures: dict[str, Any] = {
        "shape": shape,
        "documents": len(texts),
        "tokens_each": sum(tokenized.counts) / len(texts),
        "tokens": sum(tokenized.counts),
        "bare_s": base,
        "bare_tokens_s": sum(tokenized.counts) / base,
        "tokenizer_alone": seconds(lambda: features.tokenize(texts)) / base,
        **more,
    }
    run.note(f"{section} (so far)", **figures)
    few = texts[: len(texts) // 8]
    if own:
        model.encode_document(few[:64])
        some = texts[::FEWER]
        figures["sentence_transformers_documents"] = len(some)
        share = sum(tokenized.counts[::FEWER]) / sum(tokenized.counts)
        figures["sentence_transformers"] = seconds(lambda: model.encode_document(some)) / (base * share)
    encoded: list[np.ndarray] = []
    for name in ("plain", "calibrated"):
        if name == "calibrated":
            evenspan.calibrate(model)
        evenspan.encode_documents(model, few, progress=False)  # verified, and kernels compiled
        figures[name] = (
            seconds(lambda: encoded.append(evenspan.encode_documents(model, texts, progress=False)), 2) / base
        )
    if own:
        figures["own_encode_document_calibrated"] = seconds(lambda: model.encode_document(texts)) / base
        figures["faster_than_sentence_transformers"] = figures["sentence_transformers"] / figures["plain"]
    evenspan.restore(model)
    one = model.encode_document(texts[:64])
    off = np.linalg.norm(encoded[0][:64] - one, axis=1) / np.linalg.norm(one, axis=1)
    figures["largest_relative_deviation"] = float(off.max())
    run.note(section, **figures)


def index(run: Run, shape: str, texts: list[str]) -> None:
    base, model = run.bare(shape, texts), run.model(shape)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "corpus.jsonl"
        lines = (json.dumps({"id": str(number), "text": text}) for number, text in enumerate(texts))
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for turn in ("first", "warm"):
            summary = evenspan.index(model, source, f"parquet:{folder}/{turn}", progress=False)
            run.note(
                "index",
                shape=shape,
                turn=turn,
                bare_s=base,
                times_bare=summary.seconds / base,
                device_busy=(summary.device_seconds or 0.0) / summary.encoding_seconds,
            )


COLD = """
import sys, time, json, torch, evenspan
from evenspan.core.triton.launch import compiled_kernels
if __name__ == "__main__":
    model = evenspan.load(sys.argv[1], device=sys.argv[3])
    texts, mixed = json.load(open(sys.argv[2]))
    if torch.cuda.is_available(): torch.cuda.synchronize()
    began = time.perf_counter()
    evenspan.encode_documents(model, texts, progress=False)
    figures = {"seconds": time.perf_counter() - began, "kernels": compiled_kernels()}
    for start in range(0, len(mixed), 16):
        evenspan.encode_documents(model, mixed[start : start + 16], progress=False)
    print(json.dumps({**figures, "kernels_after_mixed_lengths": compiled_kernels(), "mixed_documents": len(mixed)}))
"""


def cold(run: Run, texts: list[str]) -> None:
    base = run.bare("24 x 1,024", texts)
    mixed = [run.words.text(words) for words in np.geomspace(40, 4000, 32 if run.smoke else 256).astype(int).tolist()]
    with tempfile.TemporaryDirectory() as folder:
        evenspan.calibrate(run.model("24 x 1,024")).save_pretrained(f"{folder}/model")
        (Path(folder) / "texts.json").write_text(json.dumps([texts, mixed]), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", COLD, f"{folder}/model", f"{folder}/texts.json", run.device],
            env={**os.environ, "TRITON_CACHE_DIR": f"{folder}/kernels"},
            capture_output=True,
            text=True,
            timeout=240,
        )
    if done.returncode:
        run.note("cold", error=done.stderr[-500:])
        return
    figures = json.loads(done.stdout.splitlines()[-1])
    run.note("cold", bare_s=base, times_bare=figures["seconds"] / base, **figures)


def processes(run: Run, texts: list[str]) -> None:
    model = evenspan.calibrate(run.model("24 x 1,024"))
    one = seconds(lambda: evenspan.encode_documents(model, texts, progress=False))
    began = time.perf_counter()
    arrays = evenspan.encode_documents(model, iter(texts), devices=[run.device] * 2, progress=False)
    first = next(arrays)
    started = time.perf_counter() - began
    rest = sum(len(vectors) for vectors in arrays)
    taken = time.perf_counter() - began - started
    rate = len(texts) / one
    run.note(
        "processes",
        one_process_texts_s=rate,
        until_the_first_window_s=started,
        then_texts_s=rest / max(taken, 1e-9),
        texts=len(first) + rest,
    )


def memory(run: Run, number: int) -> None:
    model = evenspan.calibrate(run.model("6 x 384"))
    pool = [run.words.text(run.words.rng.randint(3, 18)) for _ in range(5000)]

    def stream() -> Iterator[str]:
        for place in range(number):
            yield f"{place} {pool[place % len(pool)]}"

    done, marks, began = 0, [], time.perf_counter()
    for vectors in evenspan.encode_documents(model, stream(), progress=False):
        done += len(vectors)
        if done >= len(marks) * number / 10:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            device = torch.cuda.memory_reserved() / 2**20 if torch.cuda.is_available() else 0.0
            marks.append({"texts": done, "host_mib": round(resident), "device_mib": round(device)})
    run.note("memory", texts=done, texts_s=done / (time.perf_counter() - began), marks=marks)


def ray(run: Run, texts: list[str]) -> None:
    """The steady state: from the first shard that is committed to the last, so that starting Ray does not count."""
    if find_spec("ray") is None:
        run.note("ray", error="Ray is not installed here")
        return
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    from evenspan.indexing.plan import ShardSize
    from evenspan.indexing.stores.parquet import ParquetStore

    commits: list[tuple[float, int]] = []
    commit = ParquetStore.commit

    def committed(self: ParquetStore, written: Any, documents: Sequence[Any]) -> None:
        commit(self, written, documents)
        commits.append((time.perf_counter(), len(documents)))

    ParquetStore.commit = committed  # type: ignore[method-assign]
    each: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        evenspan.calibrate(run.model("24 x 1,024")).save_pretrained(f"{folder}/model")
        source = Path(folder) / "corpus.jsonl"
        several = (f"{turn} {text}" for turn in range(TURNS) for text in texts)
        lines = (json.dumps({"id": str(number), "text": text}) for number, text in enumerate(several))
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for engine in ("local", "ray"):
            commits.clear()
            more = {"engine": engine, "workers": 1} if engine == "ray" else {"device": run.device}
            if run.smoke:  # else the shards that users get
                more["shard"] = ShardSize(documents=len(texts) // 3)
            summary = evenspan.index(f"{folder}/model", source, f"parquet:{folder}/{engine}", progress=False, **more)
            (began, _), (ended, _) = commits[0], commits[-1]
            each[engine] = 1000 * (ended - began) / sum(documents for _, documents in commits[1:])
            run.note(
                "ray",
                engine=engine,
                documents=summary.total,
                shards=len(commits),
                seconds=summary.seconds,
                steady_ms_each=each[engine],
            )
    ParquetStore.commit = commit  # type: ignore[method-assign]
    more_each = each["ray"] - each["local"]
    run.note("ray", documents=TURNS * len(texts), ray_costs_ms_each=more_each, times_local=each["ray"] / each["local"])


def cpu(run: Run, repeats: int = 5) -> None:
    """By turns, so that a machine that is busy is busy for all."""
    model = evenspan.miniature("cls", device="cpu")
    texts = run.words.texts(100, 60)
    ways: dict[str, Callable[[], object]] = {
        "sentence_transformers": lambda: model.encode_document(texts),
        "plain": lambda: evenspan.encode_documents(model, texts, progress=False),
        "calibrated": lambda: evenspan.encode_documents(model, texts, progress=False),
        "own_encode_document_calibrated": lambda: model.encode_document(texts),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, way in ways.items():
            if "calibrated" in name:
                evenspan.calibrate(model)
            taken = seconds(way)
            evenspan.restore(model)
            if turn:
                times[name].append(taken)
    ratios = {
        name: statistics.median(
            own / base for own, base in zip(times[name], times["sentence_transformers"], strict=True)
        )
        for name in ways
    }
    base = statistics.median(times["sentence_transformers"])
    run.note("cpu", documents=len(texts), threads=torch.get_num_threads(), seconds=base, **ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; by default all")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes on a CPU")
    parser.add_argument("--verbose", action="store_true", help="show evenspan's debug lines")
    options = parser.parse_args()
    if unknown := set(options.sections) - {*SECTIONS, "cpu"}:
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    if not options.smoke and not torch.cuda.is_available() and options.sections != ["cpu"]:
        sys.exit("This benchmark needs a CUDA device, or --smoke.")
    if options.verbose:
        logging.basicConfig(level=logging.WARNING)
        logging.getLogger("evenspan").setLevel(logging.DEBUG)
    run = Run(options.output, smoke=options.smoke)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    run.note(
        "machine",
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        cores=os.cpu_count(),
        **versions,
    )
    count = 60 if options.smoke else 6000
    texts = run.texts(count, 530)
    work: dict[str, Callable[[], object]] = {
        "main": lambda: [measure(run, "main", shape, texts) for shape in SHAPES],
        "index": lambda: [index(run, shape, texts) for shape in SHAPES],
        "cold": lambda: cold(run, texts),
        "memory": lambda: memory(run, 20_000 if options.smoke else 1_000_000),
        "lengths": lambda: [
            measure(run, "lengths", "24 x 1,024", run.texts(max(16, count * of_each // tokens), tokens), own=False)
            for tokens, of_each in ((60, 80), (500, 80), (4000, 160))
        ],
        "qwen": lambda: measure(run, "qwen", "Qwen3-0.6B", texts[: count // 5], own=False),
        "processes": lambda: processes(run, texts),
        "ray": lambda: ray(run, texts),
        "cpu": lambda: cpu(run),
    }
    for section in options.sections or SECTIONS:
        began = time.perf_counter()
        try:
            work[section]()
        except Exception as error:  # the other sections are worth having
            run.note(section, error=f"{type(error).__name__}: {error}")
        run.note("seconds", of=section, taken=round(time.perf_counter() - began, 1))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
