from __future__ import annotations

from collections.abc import Iterator

import pytest

from fbeta.estimators import auto


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """Forests of few trees: the same search in less time."""
    patch = pytest.MonkeyPatch()
    models = auto.auto_models

    def small(*settings: object) -> dict[str, object]:
        found = models(*settings)
        for name, model in found.items():
            if "forest" in name:
                model.set_params(n_estimators=10)
        return found

    patch.setattr("fbeta.estimators.auto.auto_models", small)
    yield
    patch.undo()
