"""Index a corpus into a vector store, resumably, and search it."""

from __future__ import annotations

from evenspan.indexing.estimate import IndexEstimate
from evenspan.indexing.run import index
from evenspan.indexing.search import Index, SearchResult, open_index
from evenspan.indexing.summary import IndexSummary

__all__ = ["Index", "IndexEstimate", "IndexSummary", "SearchResult", "index", "open_index"]
