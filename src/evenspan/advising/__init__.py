"""What to set, whether to chunk, and what it costs, from texts alone."""

from evenspan.advising.advice import Advice, AdviceRow
from evenspan.advising.advising import advise

__all__ = ["Advice", "AdviceRow", "advise"]
