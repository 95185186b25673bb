"""The figures of a sweep: drawn from results alone, the same for a folder and for a report."""

from __future__ import annotations

import csv

import pytest
from helpers.reports import a_sweep

from evenspan import Calibration, sweeps
from evenspan.errors import MissingExtraError
from evenspan.sweeps.figures import strength_curves, strengths_figure, strengths_of_models, trade_off_figure


def swept(*keep: Calibration) -> sweeps.SweepResult:
    plain, *results = a_sweep()
    settings = {Calibration.parse(result.method): result for result in results}
    return sweeps.SweepResult(plain, {setting: settings[setting] for setting in keep or settings}, {})


@pytest.mark.parametrize("plot", [sweeps.plot_strengths, sweeps.plot_trade_off])
def test_images_are_written_in_the_format_of_their_name(plot, tmp_path) -> None:
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        plot(swept(), tmp_path / name)
        first = (tmp_path / name).read_bytes()
        assert first.startswith(start)
        plot(swept(), str(tmp_path / name))
        assert (tmp_path / name).read_bytes() == first, "the same figure is the same file"


def test_several_models_in_one_figure(tmp_path) -> None:
    figure = strengths_of_models({"one": swept(), "two": swept()}, "models")
    assert [panel.title for panel in figure.panels] == ["one", "two"]
    end = [row[4] for row in figure.rows if (row[0], row[3]) == ("two", "end")]
    assert end == pytest.approx([0, 0.05, 0.1, 0.2])
    sweeps.plot_strengths_of_models({"one": swept(), "two": swept()}, tmp_path / "models.svg")
    assert (tmp_path / "models.svg").stat().st_size > 1000
    with pytest.raises(ValueError, match="nothing to draw"):
        sweeps.plot_strengths_of_models({}, tmp_path / "a.png")


def test_nothing_to_draw_and_nothing_to_draw_with(tmp_path, monkeypatch) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        sweeps.plot_strengths(sweeps.SweepResult(a_sweep()[0], {}, {}), tmp_path / "a.png")
    monkeypatch.setattr("evenspan.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"evenspan\[report\]"):
        sweeps.plot_trade_off(swept(), tmp_path / "a.png")
    with pytest.raises(MissingExtraError, match=r"evenspan\[report\]"):
        swept().write(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_figures_lie_in_the_folder_with_their_data(tmp_path) -> None:
    swept().write(tmp_path)
    assert {path.name for path in tmp_path.glob("[st]*")} == {
        *(f"{name}.{ending}" for name in ("strengths", "trade_off") for ending in ("png", "svg", "csv")),
        *(f"{setting}.json" for setting in swept().results),
        "sweep.csv",
        "sweep.md",
    }
    with (tmp_path / "trade_off.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["none", *map(str, swept().results)]
    assert float(rows[0]["psi"]) == pytest.approx(1 - 0.4 / 0.9)
    assert [row["strength"] for row in rows if row["pareto"] == "yes"] == ["1.0"] * 2


def test_curves_are_of_settings_that_differ_in_strength_alone() -> None:
    soft = [Calibration(strength=strength) for strength in (0.25, 0.5, 1.0)]
    last = Calibration(strength=0.5, layers="last")
    assert strength_curves(swept(*reversed(soft), last)) == {"half": soft}
    figure = strengths_figure(swept(*soft, last), "key")
    assert [panel.title for panel in figure.panels] == ["layers: half"]
    assert "HM is highest at λ = 1" in figure.description
    assert figure.subtitle == "soft, baskets of 128"
    assert [panel.title for panel in strengths_figure(swept(soft[0]), "key").panels] == ["layers: half"]
    assert "Highest HM of 4 settings" in trade_off_figure(swept(*soft, last), "key").description
