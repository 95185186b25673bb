"""A single HTML page about audits, evaluations, sweeps, tuning and advice."""

from evenspan.report.load import Evaluation, Material, Subject, read_sources
from evenspan.report.write import check_output, write_report

__all__ = ["Evaluation", "Material", "Subject", "check_output", "read_sources", "write_report"]
