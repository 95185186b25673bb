"""Where things lie."""

from pathlib import Path

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
DOCS = ROOT / "docs"
SHARED = ROOT.parent / "shared"  # data and models beside the project, where there are some
ORACLE = TESTS / "fixtures" / "oracle"  # golden vectors, and the models that made them
