"""How long FineWeb-PosQ takes to search and score: 13,902 passages × 25,775 queries, 1,024 wide, random vectors.

python benchmarks/scoring.py [--threads 2]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch

from evenspan.evaluation.measures import measure
from evenspan.evaluation.search import DocumentVectors, search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    documents, queries, width = 13_902, 25_775, 1_024
    generator = np.random.default_rng(0)
    vectors = [generator.standard_normal((count, width), dtype=np.float32) for count in (documents, queries)]
    for array in vectors:
        array /= np.linalg.norm(array, axis=1, keepdims=True)
    ids = [f"d{number}" for number in range(documents)]
    relevance = {f"q{number}": {f"d{number % documents}": 1} for number in range(queries)}

    start = time.perf_counter()
    found = search(vectors[1], DocumentVectors(ids, vectors[0], np.ones(documents, dtype=np.int64)), 100)
    rankings = dict(zip(relevance, found, strict=True))
    searched = time.perf_counter()
    scores = measure(rankings, relevance)
    scored = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    times = f"search {searched - start:.1f} s, measures {scored - searched:.1f} s"
    print(f"{len(scores):,} queries: {times}, peak memory {peak:.2f} GiB")


if __name__ == "__main__":
    main()
