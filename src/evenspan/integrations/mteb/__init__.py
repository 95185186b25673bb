"""Score calibrated models with mteb, and our benchmarks as its tasks: see docs/mteb.md."""

from packaging.version import Version

from evenspan.errors import MissingExtraError, require_extra

require_extra("mteb", "Scoring with mteb", "mteb")

import mteb  # noqa: E402

# Versions before the extra's do not use `experiment_kwargs` in every cache and return plain scores for calibrated models.
if Version(mteb.__version__) < Version("2.26"):
    raise MissingExtraError(
        f"Scoring with mteb needs mteb 2.26 or newer, not {mteb.__version__}: pip install 'evenspan[mteb]'"
    )

from evenspan.integrations.mteb.encoder import CalibratedEncoder  # noqa: E402
from evenspan.integrations.mteb.task import BenchmarkTask, PositionScores, as_task  # noqa: E402

__all__ = ["BenchmarkTask", "CalibratedEncoder", "PositionScores", "as_task"]
