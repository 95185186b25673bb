"""What identifies an index: the model and everything else its vectors depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.identity import ModelIdentity, vectors_digest
from evenspan.models.reading import document_prompt, query_prompt

NO_CALIBRATION = "none"
Prompts = tuple[str | None, str | None]  # for documents and for queries; None for the model's own
# What may differ between two runs into one index: where the model lay, and how queries are asked; and
# how the store's own index is built.
_FREE = ("model", "revision", "query_prompt", "vector_index")


@dataclass(frozen=True)
class IndexSettings:
    """Stored with an index; a run whose settings differ is refused."""

    model: str  # its folder or its name on the hub
    revision: str | None  # its commit on the hub, if it came from there
    weights: str  # a digest of them and of what is done with them
    calibration: str  # `none` for the plain model
    document_prompt: str
    query_prompt: str
    max_tokens: int | None  # where documents are cut off
    dimensions: int
    similarity: str  # `cosine` (vectors have length 1) or `dot`
    dtype: str  # of the weights
    text: bool  # whether texts are kept
    # What follows is stored only where it is not the default: indexes without it are as ever.
    chunk_tokens: int | None = None  # most tokens in a chunk; None for whole documents
    overlap: int = 0  # tokens of two chunks
    full_text: bool = False  # whether the store's own full-text index is there for hybrid search
    vectors: str = "float32"  # how they are kept
    vector_index: str = "auto"  # see `StoreOptions`

    @classmethod
    def of(
        cls, model: SentenceTransformer, name: str, calibration: str, prompts: Prompts = (None, None), text: bool = True
    ) -> IndexSettings:
        """The settings of an index that a model makes as it is now."""
        similarity = str(model.similarity_fn_name)
        if similarity not in ("cosine", "dot"):
            raise ValueError(f"The model compares by {similarity!r}; an index supports cosine and dot.")
        identity = ModelIdentity.of(model)
        document, query = prompts
        return cls(
            model=name,
            revision=identity.revision,
            weights=vectors_digest(model, identity.weights),
            calibration=calibration,
            document_prompt=document_prompt(model) if document is None else document,
            query_prompt=query_prompt(model) if query is None else query,
            max_tokens=identity.max_tokens,
            dimensions=model.truncate_dim or model.get_embedding_dimension() or 0,
            similarity=similarity,
            dtype=identity.dtype,
            text=text,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, without those that have a default and are it."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexSettings:
        """The inverse of `to_dict`; refuses what it does not know. What has a default may be missing in an older one."""
        known = {field.name for field in fields(cls)}
        needed = {field.name for field in fields(cls) if field.default is MISSING}
        if not needed <= set(values) <= known:
            raise ValueError(
                f"The index has settings {sorted(values)}, this evenspan knows {sorted(known)}: another version made it."
            )
        return cls(**values)

    def kept_like(self, stored: IndexSettings) -> IndexSettings:
        """The same with the options of the store that an index has."""
        return replace(self, vectors=stored.vectors, vector_index=stored.vector_index)

    def check_same(self, stored: IndexSettings, location: str) -> None:
        """Refuse to mix vectors of two kinds in one index, with both settings side by side."""
        now, before = asdict(self), asdict(stored)
        different = [name for name in now if now[name] != before[name]]
        if set(different) <= set(_FREE):
            return
        rows = [("", "the index has", "this run has")]
        rows += [(name, str(before[name])[:60], str(now[name])[:60]) for name in different]
        width = max(len(row[1]) for row in rows)
        raise ValueError(
            f"{location} was made with other settings, and vectors of two kinds cannot be compared:\n"
            + "\n".join(f"  {name:16} {stored_value:{width}}  {value}" for name, stored_value, value in rows)
            + "\nUse another store, or --replace (replace=True) to rebuild this one."
        )
