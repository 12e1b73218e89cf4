"""How commands fit a method to data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.model_selection import KFold, cross_val_score

from fbeta.cli.console import UserError
from fbeta.datasets import Dataset
from fbeta.estimators.alpha_search import AlphaSearchCV

#: Seconds that the automatic method takes at most, about, unless the user says otherwise.
TIME_LIMIT = 120.0
#: Seconds by the words of ``--preset``.
PRESETS = {"quick": 20.0, "best": 1800.0}


@dataclass(frozen=True)
class Strategy:
    """How the parameters of a method are chosen: a fixed alpha, or folds, jobs and seconds."""

    alpha: float | None = None
    alphas: Sequence[float] = ()
    cv: int = 5
    jobs: int | None = None
    time_limit: float | None = None

    def check(self, model: Any, method: str, given: Mapping[str, Any]) -> None:
        """Refuse options that say nothing of a method; ``given`` has their values by name."""
        named = [name for name, value in given.items() if value is not None]
        known = model.get_params(deep=False)
        limits = [name for name in named if name in ("--time-limit", "--preset")]
        if "time_limit" not in known and limits:
            raise UserError(f"{limits[0]}: the method {method} has no time limit, only auto has")
        if "alpha" not in known:
            named = ["--alpha", *named] if self.alpha is not None else named
            # of a method that has a search of its own
            own = {"--cv": "cv", "--jobs": "n_jobs", "--time-limit": "time_limit"}
            own["--preset"] = "time_limit"
            named = [name for name in named if own.get(name) not in known]
            if named:
                raise UserError(f"{', '.join(named)}: the method {method} has no alpha")
        elif self.alpha is not None and named:
            raise UserError(f"{', '.join(named)}: with --alpha there is nothing to choose")

    def check_rows(self, rows: int) -> None:
        """Raise before the work begins where there are more folds than rows."""
        if self.alpha is None and self.cv > rows:
            raise UserError(
                f"--cv {self.cv}: there are only {rows} rows: choose fewer folds, or an --alpha"
            )

    def fit(
        self,
        model: Any,
        data: Dataset,
        *,
        always_score: bool = False,
        progress: Callable[[Any], None] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Fit an estimator, with its alpha chosen by cross-validation unless one is given.

        Returns it, and a dict with ``alpha``, ``cv_score`` and ``seconds``. With ``always_score``,
        what needs no folds is scored on some too. ``progress`` is called by methods that search.
        """
        begin = time.perf_counter()
        alpha, score = self.alpha, None
        known = model.get_params(deep=False)
        if alpha is not None:
            model = model.set_params(alpha=alpha).fit(data.X, data.Y)
        elif "alpha" in known:
            # the search itself is kept: it knows how far to trust what the model expects
            model = AlphaSearchCV(model, alphas=self.alphas, cv=self.cv, n_jobs=self.jobs)
            model = model.fit(data.X, data.Y)
            alpha, score = model.alpha_, model.best_score_
        else:
            limit = TIME_LIMIT if self.time_limit is None else self.time_limit
            cv = "auto" if self.cv == 5 and hasattr(model, "candidates") else self.cv
            chosen = {"cv": cv, "n_jobs": self.jobs, "time_limit": limit}
            model = model.set_params(**{k: v for k, v in chosen.items() if k in known})
            told = {"progress": progress} if progress and "time_limit" in known else {}
            model = model.fit(data.X, data.Y, **told)
            score = getattr(model, "best_score_", None)
        if score is None and always_score:
            folds = KFold(self.cv, shuffle=True, random_state=0)
            score = float(cross_val_score(model, data.X, data.Y, cv=folds).mean())
        return model, {"alpha": alpha, "cv_score": score, "seconds": time.perf_counter() - begin}
