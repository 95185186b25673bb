"""What PyPI shows: the README, whose links lead into the repository that a release is made from.

`EVENSPAN_REPOSITORY` names it, as the workflows do. Without it the README stays as it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling for every wheel and source distribution."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        if repository := os.environ.get("EVENSPAN_REPOSITORY", "").rstrip("/"):
            place = f"v{metadata['version']}"
            readme = re.sub(r"\]\((?!https?:|#)", f"]({repository}/blob/{place}/", readme)
            readme = re.sub(r'src="(?!https?:)', f'src="{repository}/raw/{place}/', readme)
            metadata["urls"] = {"Source": repository, "Changelog": f"{repository}/blob/{place}/CHANGELOG.md"}
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
