"""One page that shows audits, evaluations and sweeps to people."""

from evenspan.report.reading import Evaluation, Material, Subject, read_sources
from evenspan.report.writing import write_report

__all__ = ["Evaluation", "Material", "Subject", "read_sources", "write_report"]
