"""See the bias of a model on documents without labels: `evenspan.audit`; `result.py` says what it finds."""
