"""A benchmark that is made on the spot: documents of many paragraphs, each about something else, and questions on them.

Paired: every question is asked with its evidence at the beginning, in the middle and at the end of the same document, the
paragraphs rotated, so a difference between the groups is position and nothing else.
"""

from __future__ import annotations

import json
import math
import random
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from evenspan.evaluation.benchmark import POSITIONS, Benchmark, Collection, Query

# Names, facts in many phrasings with the questions that ask for them, and sentences in between.
PHRASES: dict[str, Any] = json.loads((files(__package__) / "phrases.json").read_text(encoding="utf-8"))
PARAGRAPH_TOKENS = 85  # at least, in the usual word-piece vocabularies
TOKENS_PER_WORD, TOKENS_OF_NAMES = 1.18, 13.94  # invented names make more tokens, a few times in each paragraph
MOST_PARAGRAPHS = 6  # longer documents have longer paragraphs: one vector cannot hold any number of subjects
QUESTIONS = 2  # for each document, on two facts of one paragraph
SHORTEST, LONGEST = 512, 8192


class _Paragraph(NamedTuple):
    text: str
    questions: list[str]


def load_generated(
    documents: int = 60, tokens: int = 600, seed: int = 0, mode: Literal["paired", "single"] = "paired"
) -> Benchmark:
    """Generate documents and questions, the same for the same arguments on every machine.

    More documents make it harder, longer ones hardly do: the plain first-token miniature scores nDCG@10 57 (BM25: 75) with
    60 documents of 600 tokens, 69 (86) with 40 of 2,000, 46 (78) with 100 of 1,024 and 40 (68) with 200 of 512.

    Args:
        documents: how many.
        tokens: about how long each is, 512 to 8,192.
        seed: of everything that is drawn.
        mode: `"paired"`: three collections, one for each position, that differ by rotation alone, and every question
            searched in all three. `"single"`: one collection, each document in one rotation drawn by the seed.
    """
    if documents < 3:
        raise ValueError(f"documents must be at least 3, not {documents}.")
    if not SHORTEST <= tokens <= LONGEST:
        raise ValueError(f"tokens must be between {SHORTEST:,} and {LONGEST:,}, not {tokens}.")
    if mode not in ("paired", "single"):
        raise ValueError(f"mode must be 'paired' or 'single', not {mode!r}.")
    pick = random.Random(f"evenspan generated {documents} {tokens} {seed}")  # noqa: S311 - texts, not secrets
    paragraphs = min(round(tokens / PARAGRAPH_TOKENS), MOST_PARAGRAPHS)
    words = (tokens / paragraphs - TOKENS_OF_NAMES) / TOKENS_PER_WORD
    subjects = _subjects(documents * paragraphs, pick)
    used: set[str] = set()
    made = [
        [_paragraph(*subjects[number * paragraphs + place], words, pick, used) for place in range(paragraphs)]
        for number in range(documents)
    ]
    asked = [pick.randrange(paragraphs) for _ in made]
    options = {"source": "generated", "documents": documents, "tokens": tokens, "seed": seed, "mode": mode}
    if mode == "paired":
        collections = tuple(_collection(name, made, asked, [name] * documents) for name in POSITIONS)
    else:
        placed = [POSITIONS[number % 3] for number in range(documents)]
        pick.shuffle(placed)
        collections = (_collection("generated", made, asked, placed),)
    depth, paired = max(100, documents), mode == "paired"
    return Benchmark("generated", collections, POSITIONS, depth=depth, options=options, paired=paired)


def _subjects(count: int, pick: random.Random) -> list[tuple[str, str]]:
    """Places and types, no pair twice; every place has several types and every type many places, so all are confusable."""
    types = PHRASES["types"]
    needed = math.ceil(count / (len(types) * 0.6))
    places = [start + end for start in PHRASES["place_starts"] for end in PHRASES["place_ends"]]
    if needed > len(places):
        raise ValueError(
            f"There are not enough names for {count:,} paragraphs: ask for fewer documents or shorter ones "
            f"(up to {len(places) * len(types) * 0.6:,.0f} paragraphs)."
        )
    chosen = pick.sample(places, max(needed, 8))
    return pick.sample([(place, kind) for place in chosen for kind in types], count)


def _paragraph(place: str, kind: str, words: float, pick: random.Random, used: set[str]) -> _Paragraph:
    """Some facts on one subject among sentences that answer no question and were not `used` before."""
    facts = [PHRASES["facts"][fact] for fact in pick.sample(sorted(PHRASES["facts"]), QUESTIONS)]
    name = f"the {place} {kind}"
    known = [_fill(pick.choice(fact["phrasings"]), pick, name=name, place=place, type=kind) for fact in facts]
    sentences = [known[0]]
    length = sum(len(sentence.split()) for sentence in known)
    between: list[str] = []
    while length < words:
        between = between or pick.sample(PHRASES["between"], len(PHRASES["between"]))
        template = between.pop()
        while (sentence := _fill(template, pick, type=kind)) in used:
            pass
        used.add(sentence)
        sentences.append(sentence)
        length += len(sentence.split())
    sentences.insert(pick.randrange(1, len(sentences) + 1), known[1])
    return _Paragraph(" ".join(sentences), [pick.choice(fact["questions"]).replace("{name}", name) for fact in facts])


def _fill(template: str, pick: random.Random, **known: str) -> str:
    """A sentence from a template; its first letter is a capital."""
    name = known.get("name", "")
    values = {
        **known,
        "Name": name[:1].upper() + name[1:],
        "person": f"{pick.choice(PHRASES['first_names'])} {pick.choice(PHRASES['last_names'])}",
        "year": str(pick.randrange(1605, 1995)),
        "number": f"{pick.randrange(11, 990) * 10:,}",
        "small": str(pick.randrange(14, 97)),
        "material": pick.choice(PHRASES["materials"]),
        "thing": pick.choice(PHRASES["things"]),
        "month": pick.choice(PHRASES["months"]),
    }
    sentence = template.format(**values)
    return sentence[:1].upper() + sentence[1:]


def _collection(name: str, made: list[list[_Paragraph]], asked: list[int], placed: list[str]) -> Collection:
    """The documents, each rotated so that the paragraph that is asked about stands where `placed` says."""
    corpus: dict[str, str] = {}
    queries: list[Query] = []
    relevance: dict[str, dict[str, int]] = {}
    for number, (paragraphs, place, position) in enumerate(zip(made, asked, placed, strict=True)):
        target = {"beginning": 0, "middle": len(paragraphs) // 2, "end": len(paragraphs) - 1}[position]
        rotated = [paragraphs[(index + place - target) % len(paragraphs)].text for index in range(len(paragraphs))]
        document = f"d{number:05}"
        corpus[document] = "\n\n".join(rotated)
        start = sum(len(paragraph) + 2 for paragraph in rotated[:target])
        middle = (start + len(rotated[target]) / 2) / len(corpus[document])
        for part, question in enumerate(paragraphs[place].questions):
            queries.append(Query(f"q{number:05}-{part}", question, (position,), middle))
            relevance[queries[-1].id] = {document: 1}
    return Collection(name, corpus, tuple(queries), relevance)
