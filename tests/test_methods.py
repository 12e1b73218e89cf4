"""The one list of methods and parts."""

from __future__ import annotations

import pytest
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold

import fbeta
import fbeta.rivals
from fbeta.losses import LOSSES
from fbeta.methods import METHODS, PARTS, load_part, make_method, method_title, part_name
from fbeta.report.charts import PALETTE, colour_of


def test_every_part_is_where_the_list_says() -> None:
    for name in PARTS.keys() - {
        "HighestScore",
        "PairwiseModel",
        "SignOfScores",
    }:  # of earlier files
        assert part_name(load_part(name)) == name
    assert part_name(load_part("HighestScore")) == "ScoreThresholds"
    assert part_name(load_part("PairwiseModel")) == "BundleModel"
    assert part_name(KFold) is None
    # a class of the same name is not the class
    assert part_name(type("Limo", (), {})) is None


def test_every_estimator_and_loss_is_a_part() -> None:
    public = [getattr(module, n) for module in (fbeta, fbeta.rivals) for n in module.__all__]
    estimators = {
        c.__name__ for c in public if isinstance(c, type) and issubclass(c, BaseEstimator)
    }
    assert estimators <= PARTS.keys()
    assert {type(loss).__name__ for loss in LOSSES.values()} <= PARTS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_made_with_their_parameters(name: str) -> None:
    model = make_method(name, 2.0)
    assert type(model).__name__ == METHODS[name].estimator
    assert model.beta == 2.0
    params = model.get_params(deep=False)
    assert METHODS[name].parameters.items() <= params.items()
    assert method_title(name) == METHODS[name].title


def test_unknown_methods_are_named() -> None:
    with pytest.raises(ValueError, match="unknown method 'nonsense': expected one of fbeta, "):
        make_method("nonsense")


def test_methods_have_colours_of_their_own() -> None:
    numbers = {METHODS[name].estimator: colour_of(name) for name in METHODS}
    assert len(set(numbers.values())) == len(numbers) < len(PALETTE)
    assert all(colour_of(class_) == number for class_, number in numbers.items())
    assert colour_of("nonsense") not in numbers.values()
