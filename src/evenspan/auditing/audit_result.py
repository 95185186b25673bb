"""What `evenspan.audit` returns: for people, for files, and read back from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenspan.auditing.findings import attention_sentence, audit_findings, position_table
from evenspan.auditing.parsing import parse
from evenspan.auditing.schema import AuditFigures
from evenspan.evaluation.cache import write_whole

KIND = "audit"  # what a file of an audit says it is


@dataclass(frozen=True)
class Audit(AuditFigures):
    """What `evenspan.audit` found; `print` it for people, `write` it for programs and for `evenspan report`."""

    def to_json(self) -> str:
        """All fields, and what kind of file this is."""
        return json.dumps({"kind": KIND, **asdict(self)}, indent=2, ensure_ascii=False, allow_nan=False)

    def write(self, path: str | Path) -> None:
        """Write the audit as JSON, whole or not at all."""
        content = f"{self.to_json()}\n".encode()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_whole(Path(path), content)

    @classmethod
    def read(cls, path: str | Path) -> Audit:
        """An audit from a file that `write` made."""
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.get("kind") != KIND:
            raise ValueError(f"{path} is not an audit written by `evenspan audit`.")
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Audit:
        """The inverse of `to_json`, from what it was read to; raises a `ValueError` if it is not that."""
        try:
            audit: Audit = parse(cls, values)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"This audit is incomplete or damaged: {type(error).__name__}: {error}.") from error
        return audit

    def __str__(self) -> str:
        parts = [self.model, *(f"{finding.lead} {finding.text}" for finding in audit_findings(self))]
        plain, calibrated = self.representations
        if plain is not None:
            parts.append(position_table(plain, calibrated))
        if self.plain.attention is not None:
            parts.append(attention_sentence(self.plain.attention))
        if self.notes:
            parts.append("\n".join(f"Note: {note}" for note in self.notes))
        return "\n\n".join(parts)
