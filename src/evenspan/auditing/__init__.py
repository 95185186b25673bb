"""See the bias of a model on documents without labels: `evenspan.audit`; `audit_result.py` says what it returns."""
