"""From sources to a page and its figures on disk."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path

from evenspan.report.load import Material, read_sources

_FIGURE = re.compile(r"m\d+-(audit|evaluation)\d+-[\w-]+\.(svg|png|csv)")


def write_report(sources: Iterable[str | Path] | str | Path | Material, output: str | Path = "report.html") -> Path:
    """Write one self-contained page about audits, evaluations and sweeps, and every figure beside it.

    Figures go to a folder named after the page, `report_figures` for `report.html`: as SVG, as PNG, and their data as
    CSV. The same sources give the same files.

    Args:
        sources: files and folders that `evenspan audit`, `evaluate` and `sweep` wrote, or what `read_sources` made.
        output: where the page goes.

    Returns:
        The path of the page.

    Raises:
        ImportError: matplotlib is not installed.
        FileNotFoundError: a source does not exist.
        ValueError: there is nothing to report in the sources.

    Example:
        >>> write_report(["audit/", "results/"], "report.html")  # doctest: +SKIP
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("A report has figures, which need matplotlib: pip install 'evenspan[report]'.")
    from evenspan.drawing.figure import save
    from evenspan.evaluation.cache import write_whole
    from evenspan.report.figures.audit import audit_figures
    from evenspan.report.figures.evaluation import evaluation_figures
    from evenspan.report.page import page

    if isinstance(sources, (str, Path)):
        sources = [sources]
    material = sources if isinstance(sources, Material) else read_sources(sources)
    target = Path(output)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: name a file, such as {target / 'report.html'}.")
    if target.exists() and target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{target} is there and no page: name an .html file, so that nothing else is written over.")
    figures = {}
    for number, subject in enumerate(material.subjects):
        wanted = next((audit.calibration for _, audit in subject.audits if audit.calibration), None)
        for place, (_, audit) in enumerate(subject.audits):
            figures["audit", number, place] = audit_figures(audit, f"m{number + 1}-audit{place + 1}")
        for place, evaluation in enumerate(subject.evaluations):
            key = f"m{number + 1}-evaluation{place + 1}"
            figures["evaluation", number, place] = evaluation_figures(evaluation, key, wanted)
    folder = target.with_name(f"{target.stem}_figures")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():  # figures of an earlier report that this one may not have
        if _FIGURE.fullmatch(old.name):
            old.unlink()
    for figure in (one for several in figures.values() for one in several):
        save(figure, folder)
    write_whole(target, page(material, figures, folder.name).encode())
    return target
