"""What clients send, in the spellings of OpenAI, Cohere, Voyage and Jina: which texts, and whether queries or documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evenspan.formatting import clipped, tame
from evenspan.serving.batcher import Role
from evenspan.serving.errors import ApiError
from evenspan.serving.settings import ServerSettings

_ROLES: dict[str, Role] = {
    **dict.fromkeys(("query", "search_query", "retrieval.query"), "query"),
    **dict.fromkeys(("document", "search_document", "retrieval.passage", "passage"), "document"),
}
Ids = list[int]
Encoding = Literal["float", "base64"]


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    refused: ClassVar[dict[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _known(cls, values: Any) -> Any:
        """Refuse what is not known, rather than do something else than was asked for; one error is enough."""
        for name in values if isinstance(values, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(
                    f"unknown field {clipped(tame(str(name)), 80)!r}; allowed are {', '.join(cls.model_fields)}"
                )
        return values


class EmbeddingRequest(_Request):
    """`POST /v1/embeddings`: OpenAI's, with what Voyage and Jina have besides."""

    model: str
    input: Any
    encoding_format: Encoding | None = None
    dimensions: int | None = Field(None, ge=1)
    user: str | None = None
    input_type: str | None = None  # Voyage, and Cohere's words
    task: str | None = None  # Jina
    truncate: bool | str | None = None  # Jina: true or false; Cohere's words
    truncation: bool | None = None  # Voyage
    output_dimension: int | None = Field(None, ge=1)  # Voyage
    output_dtype: Literal["float"] | None = None  # Voyage
    embedding_type: Encoding | None = None  # Jina
    normalized: Literal[True] | None = None  # Jina
    late_chunking: Literal[False] | None = None  # Jina


class CohereRequest(_Request):
    """`POST /v2/embed`: Cohere's."""

    model: str
    texts: Any = None
    input_type: str | None = None
    embedding_types: list[Encoding] | None = None
    truncate: str | None = None
    output_dimension: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=1)
    priority: int | None = None


class PartsRequest(_Request):
    """`POST /v1/parts`: one document, and how it is to be looked at."""

    model: str | None = None
    input: str = Field(max_length=200_000)
    calibration: str | None = Field(None, max_length=500)
    segments: int = Field(5, ge=2, le=24)
    question: str | None = Field(None, max_length=10_000)


@dataclass(frozen=True)
class Order:
    """What a request asks for."""

    role: Role
    texts: Sequence[str] | Sequence[Ids]
    dimensions: int | None
    refuse_long: bool

    @property
    def are_ids(self) -> bool:
        """Whether the inputs are tokenized."""
        return not isinstance(self.texts[0], str)


def embedding_order(request: EmbeddingRequest, settings: ServerSettings) -> Order:
    """What an `EmbeddingRequest` asks for."""
    role = _role(request.model, {"input_type": request.input_type, "task": request.task}, settings)
    texts = _inputs(request.input, "input", settings)
    for pair in (("dimensions", "output_dimension"), ("encoding_format", "embedding_type")):
        if len({getattr(request, name) for name in pair} - {None}) > 1:
            raise ApiError(400, f"{' and '.join(pair)} contradict each other.", param=pair[0])
    dimensions = request.dimensions or request.output_dimension
    return Order(role, texts, dimensions, _refuses_long(request.truncate) or request.truncation is False)


def cohere_order(request: CohereRequest, settings: ServerSettings) -> Order:
    """What a `CohereRequest` asks for."""
    role = _role(request.model, {"input_type": request.input_type}, settings)
    texts = _inputs(request.texts, "texts", settings)
    if isinstance(request.texts, str) or not isinstance(texts[0], str):
        raise ApiError(400, "texts must be a list of texts.", param="texts")
    if request.max_tokens is not None:
        raise ApiError(
            400, "max_tokens is not supported: texts are truncated at the model's limit.", param="max_tokens"
        )
    return Order(role, texts, request.output_dimension, _refuses_long(request.truncate))


def check_model(name: str, settings: ServerSettings) -> Role | None:
    """Whether a name is that of the model; what stands behind it says queries or documents."""
    for role in _ROLES.values():
        if name == f"{settings.name}:{role}":
            return role
    if name != settings.name:
        known = f"{settings.name}, {settings.name}:query, {settings.name}:document"
        raise ApiError(
            404,
            f"Unknown model {clipped(tame(name), 80)!r}. Available: {known}.",
            param="model",
            code="model_not_found",
        )
    return None


def _role(model: str, given: dict[str, str | None], settings: ServerSettings) -> Role:
    said = {"model": check_model(model, settings)}
    for name, word in given.items():
        if word is not None and word not in _ROLES:
            known = ", ".join(_ROLES)
            raise ApiError(400, f"{name} must be one of {known}, not {clipped(tame(word), 80)!r}.", param=name)
        said[name] = None if word is None else _ROLES[word]
    roles = {role for role in said.values() if role is not None}
    if len(roles) > 1:
        names = " and ".join(name for name, role in said.items() if role is not None)
        raise ApiError(400, f"{names} contradict each other: one says query, one document.", param="input_type")
    if roles:
        return roles.pop()
    if settings.default_input_type is not None:
        return _ROLES[settings.default_input_type]
    raise ApiError(
        400,
        "input_type is missing: documents are calibrated, queries are not. Send input_type 'query' or 'document', or call "
        f"the model {settings.name}:query or {settings.name}:document.",
        param="input_type",
        code="missing_input_type",
    )


def _inputs(given: Any, name: str, settings: ServerSettings) -> list[str] | list[Ids]:
    """The texts of a request, or their token ids."""
    given = [given] if isinstance(given, str) or _are_ids(given) else given
    if not isinstance(given, list) or not given:
        raise ApiError(400, f"{name} must be a text or a list of texts, not empty.", param=name)
    if len(given) > settings.max_texts:
        raise ApiError(413, f"{name} has {len(given):,} texts; the limit is {settings.max_texts:,}.", param=name)
    if all(isinstance(text, str) for text in given):
        if any(_has_surrogates(text) for text in given):
            raise ApiError(400, f"{name} contains unpaired surrogates, which are not valid text.", param=name)
        return given
    if not all(_are_ids(ids) for ids in given):
        raise ApiError(400, f"{name} must be a text or a list of texts.", param=name)
    if not settings.accept_token_ids:
        raise ApiError(
            400,
            "Token ids are not accepted by default. Send text (in LangChain check_embedding_ctx_length=False), or start the "
            "server with --accept-token-ids.",
            param=name,
        )
    return given


def _are_ids(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(type(entry) is int for entry in given)


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuses_long(truncate: bool | str | None) -> bool:
    if truncate is None or isinstance(truncate, bool):
        return truncate is False
    word = truncate.upper()
    if word not in ("NONE", "END"):
        raise ApiError(400, f"truncate must be NONE or END, not {clipped(tame(truncate), 80)!r}.", param="truncate")
    return word == "NONE"
