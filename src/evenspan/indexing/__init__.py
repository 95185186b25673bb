"""Index a corpus into a vector store, resumably, search it, and keep it up to date."""

from __future__ import annotations

from evenspan.indexing.estimate import IndexEstimate
from evenspan.indexing.maintaining import Verification, delete_documents, verify_index
from evenspan.indexing.run import index
from evenspan.indexing.search import Index, SearchResult, open_index
from evenspan.indexing.summary import IndexSummary

__all__ = [
    "Index",
    "IndexEstimate",
    "IndexSummary",
    "SearchResult",
    "Verification",
    "delete_documents",
    "index",
    "open_index",
    "verify_index",
]
