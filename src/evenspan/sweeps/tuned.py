"""What tuning found: a setting to use, or that the model is better left as it is."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenspan.calibration import Calibration
from evenspan.encoding import Truncated
from evenspan.evaluation.benchmarks.texts import is_made_of_texts
from evenspan.evaluation.cache import write_whole
from evenspan.evaluation.comparing import Comparison, Difference
from evenspan.formatting import count, counted
from evenspan.sweeps.objectives import Aim, Objective
from evenspan.sweeps.sweep_result import SweepResult

KIND = "tuning"  # what a file of an answer says it is


@dataclass(frozen=True)
class Tuning:
    """What tuning found.

    Attributes:
        calibration: what to use, as `calibrate` takes it; None: leave it off.
        candidate: the best setting on the development queries, among those with acceptable losses if there are any.
        chosen: whether it was better there than the plain model.
        development: plain and candidate on the queries that chose.
        confirmation: plain and candidate on the other queries, with the significance of the difference.
        sweep: all settings on all queries.
        aim: what was chosen by, see `tune`.
        gain: of the candidate in what counts (HM; nDCG@10 where there are no positions) on the confirming queries.
        losses: what a candidate costs that is better there, in words; with `balanced` the reason to leave it off.
        passed_over: the setting that was better by HM than the candidate on the development queries, and what it cost there.
        truncation: what the model never reads of the documents; None if that was not looked at.
    """

    calibration: Calibration | None
    candidate: Calibration
    chosen: bool
    development: Comparison
    confirmation: Comparison
    sweep: SweepResult
    aim: Aim
    gain: Difference
    losses: tuple[str, ...] = ()
    passed_over: str | None = None
    truncation: Truncated | None = None

    @property
    def objective(self) -> Objective:
        """What was chosen by."""
        return self.aim.objective

    def __str__(self) -> str:
        tables = f"Development queries\n{self.development}\n\nConfirming queries\n{self.confirmation}"
        return f"{self.in_words()}\n\n{tables}"

    def in_words(self) -> str:
        """What is cut off, the answer, what it rests on, and how to use it, a line each."""
        truncated = [str(self.truncation)] if self.truncation is not None and self.truncation.cut else []
        return "\n".join([*truncated, self.answer, self.rests_on, usage(self.calibration)])

    @property
    def rests_on(self) -> str:
        """Which queries and documents the answer was found with."""
        plain = self.sweep.plain
        kind = "stand-in queries" if is_made_of_texts(plain.setting["benchmark_options"]) else "queries"
        return (
            f"Based on {count(len(plain.per_query))} {kind} over {counted(plain.setting['documents'], 'document')} of "
            f"{plain.benchmark}: those of one part of the documents chose the setting, the others confirmed it."
        )

    @property
    def answer(self) -> str:
        """What to do, and the figures that say so."""
        gain, aim, queries = self.gain, self.aim, "on the development queries"
        measured = f"{aim.figure} {100 * gain.value:+.2f}"
        if gain.interval is not None:
            measured += f", 95 % interval {100 * gain.interval[0]:+.2f} to {100 * gain.interval[1]:+.2f}"
        best = f"the best {'among the acceptable ' * bool(self.passed_over)}of {len(self.sweep.results)} settings {queries}"
        if self.calibration is not None:
            answer = f"Use {self.calibration}: {best}; on the others {measured}."
            if aim.limited:
                answer += " Beyond noise, overall nDCG@10 does not fall and no position loses more than another gains."
            answer += f" Losses: {'; '.join(self.losses)}." if self.losses else ""
        elif self.losses:
            answer = f"Leave it off: {self.candidate} was {best}, on the others {measured}, but its losses are not "
            answer += (
                f"acceptable: {'; '.join(self.losses)}. To choose by HM alone, use the objective 'hm' (--objective hm)."
            )
        elif self.chosen:
            sure = gain.interval is not None and gain.interval[0] > 0  # and yet no star
            why = "cannot be confirmed on so few documents" if sure else "is within noise"
            answer = f"Leave it off: {self.candidate} was {best}, but its gain on the others {why} ({measured})."
        else:
            answer = (
                f"Leave it off: {queries} none of {len(self.sweep.results)} settings was better than the plain model. "
            )
            answer += f"The best of them, {self.candidate}, on the others: {measured}."
        answer += f" Not chosen, though better by {aim.figure}: {self.passed_over}." if self.passed_over else ""
        return answer

    def to_dict(self) -> dict[str, Any]:
        """The answer and its figures as JSON-ready values."""
        setting = self.sweep.plain.setting
        return {
            "kind": KIND,
            "calibration": None if self.calibration is None else str(self.calibration),
            "answer": self.answer,
            "rests_on": self.rests_on,
            "truncation": None if self.truncation is None else asdict(self.truncation),
            "candidate": str(self.candidate),
            "objective": self.objective,
            "gain": asdict(self.gain),
            "losses": list(self.losses),
            "passed_over": self.passed_over,
            "development": json.loads(self.development.to_json()),
            "confirmation": json.loads(self.confirmation.to_json()),
            "model": setting.get("model"),
            "weights_sha256": setting.get("weights_sha256"),
            "setting": dict(setting),
        }

    def write(self, path: str | Path) -> None:
        """Write it as JSON, which `--calibration FILE` takes in every command."""
        write_whole(Path(path), f"{json.dumps(self.to_dict(), indent=2, ensure_ascii=False)}\n".encode())


@dataclass(frozen=True)
class LeftOff:
    """The answer of tuning, without any work, if all texts are too short for every setting."""

    truncation: Truncated
    settings: int
    fewest_tokens: int
    calibration: None = None

    def __str__(self) -> str:
        return f"{self.answer}\n{usage(None)}"

    @property
    def answer(self) -> str:
        """What to do, and why."""
        return (
            f"Leave it off: all texts are shorter than {count(self.fewest_tokens)} tokens (the longest has "
            f"{count(self.truncation.longest)}), so no setting changes them."
        )

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON-ready values."""
        return {"kind": KIND, "calibration": None, "answer": self.answer, "truncation": asdict(self.truncation)}

    def write(self, path: str | Path) -> None:
        """Write it as JSON, which `--calibration FILE` takes in every command."""
        write_whole(Path(path), f"{json.dumps(self.to_dict(), indent=2, ensure_ascii=False)}\n".encode())


def usage(calibration: Calibration | None) -> str:
    """The line of Python to use an answer."""
    if calibration is None:
        return "Use the model as it is: model.encode_document(texts)"
    return f'Use it: evenspan.calibrate(model, evenspan.Calibration.parse("{calibration}"))'
