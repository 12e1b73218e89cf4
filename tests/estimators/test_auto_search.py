"""The search of FBetaAuto: its order, its clock and what there is time and memory for."""

from __future__ import annotations

import itertools
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import ExtraTreesClassifier

from fbeta import (
    FBetaAuto,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaForest,
    LabelStatistics,
    SizedClassifier,
    decode,
)
from fbeta.datasets import make_calibrated
from fbeta.estimators import auto, average, members
from fbeta.estimators import auto_search as searching
from fbeta.estimators import folds as folding
from fbeta.estimators.auto import feature_maps
from fbeta.estimators.auto_search import Search
from fbeta.estimators.average import Clock
from fbeta.estimators.folds import make_folds
from fbeta.estimators.members import Trial, stacked_weights
from fbeta.labels.forms import form_of
from fbeta.metrics import fbeta_per_instance


@pytest.fixture(scope="module")
def data():
    X, Y, _, _ = make_calibrated(100, n_labels=2, n_features=6)
    return X * 10.0 ** np.arange(-3, 3), Y


def prepared(X, Y, clock, **options):
    indicator = form_of(Y).read(Y)
    folds = make_folds(2, X, indicator)
    trial = Trial(indicator, None, folds, 1.0)
    models = auto.auto_models(1.0, 0, X)
    models = {name: model for name, model in models.items() if name in searching.LINEAR_NAMES}
    maps = feature_maps(X, 0)
    return Search(X, trial, clock, lambda event: None, maps, models, **options)


def test_time_is_kept_by_a_clock_that_tests_can_turn(data):
    X, Y = data
    ticks = itertools.count()
    # every look at the clock is a second later
    clock = Clock(lambda: float(next(ticks)), 60.0)
    search = prepared(X, Y, clock)
    model = search.run()
    assert 1 <= len(search.found) < len(search.maps) * len(search.models)
    assert max(c.seconds for c in search.candidates) < 60.0
    assert model.leaderboard
    # the first is always there, and nothing else where there is no time
    search = prepared(X, Y, Clock(lambda: float(next(ticks)), 1e-9))
    assert [row["name"] for row in search.run().leaderboard] == ["standardised: sized"]


def test_a_step_that_goes_on_too_long_is_ended(data, monkeypatch):
    X, Y = data
    now = [0.0]
    clock = Clock(lambda: now[0], 10.0)
    search = prepared(X, Y, clock)
    assert search._try(("standardised", "sized"))
    calls = itertools.count()

    def check(own, at, then):
        # the clock turns in the middle of a step
        now[0] = then if next(calls) == at else now[0]
        if own.elapsed > own.deadline:
            raise TimeoutError

    monkeypatch.setattr(Clock, "check", partial(check, clock, 3, 6.0))
    # no pair may take more than a share of what is left, but another may be tried
    assert search._try(("raw", "cardinality"))
    assert search.failed == {("raw", "cardinality"): "it took too long"}
    monkeypatch.setattr(Clock, "check", partial(check, clock, 6, 100.0))
    assert not search._try(("raw", "joint"))
    assert list(search.found) == [("standardised", "sized")]
    with pytest.raises(TimeoutError):
        clock.check()


def test_nothing_is_begun_that_is_expected_to_end_too_late(monkeypatch):
    monkeypatch.setattr(searching, "MIN_PROBED_ROWS", 100)
    monkeypatch.setattr(average, "PROBE_ROWS", 60)
    X, Y, _, _ = make_calibrated(120, n_labels=2, n_features=6)
    search = prepared(X, Y, Clock(lambda: 0.0, 10.0))
    assert search._try(("standardised", "sized"))
    search.expected["cardinality"] = 100.0
    assert search._try(("raw", "cardinality"))
    assert search.failed == {("raw", "cardinality"): "it would take too long"}
    # 2 labels and 2 sizes: 4 problems of the quickest model, 5 of the paper's
    (quick,) = search.candidates
    expected = quick.seconds * searching.JOINT_SHARE * 5 / 4
    assert search._seconds(("raw", "joint")) == pytest.approx(expected)
    assert average.probed_seconds(search, "raw", "label sets") == 0.0


def test_an_interruption_ends_the_search_and_keeps_the_average(data):
    X, Y = data
    clf = FBetaAuto(cv=2, random_state=0)
    scored, before = [], vars(clf).copy()

    def interrupt(event):
        scored.extend([event.name] if event.event == "scored" else [])
        if len(scored) > 2:
            raise KeyboardInterrupt

    events = []

    def once(event):
        events.append(event.event)
        if events.count("scored") == 3 and event.event == "scored":
            raise KeyboardInterrupt

    clf.fit(X, Y, progress=once)
    assert "stopped" in events
    assert len(clf.leaderboard_) == 4  # two candidates of two pairs
    assert clf.predict(X).shape == Y.shape

    def at_once(event):
        raise KeyboardInterrupt

    other = FBetaAuto(cv=2, random_state=0)
    for callback in (at_once, interrupt):  # nothing was scored; again during the final fit
        with pytest.raises(KeyboardInterrupt):
            other.fit(X, Y, progress=callback)
        assert vars(other) == before


def test_own_candidates(data):
    X, Y = data
    own = [("trees", ExtraTreesClassifier(10, random_state=0)), ("mine", FBetaClassifier())]
    alone = FBetaAuto(cv=2, candidates=own, replace=True, random_state=0).fit(X, Y)
    names = {"raw: trees", "raw: trees, independent", "raw: mine"}
    assert {row["name"] for row in alone.leaderboard_} == names
    both = FBetaAuto(cv=2, candidates=own[:1], time_limit=1e-6, random_state=0).fit(X, Y)
    assert both.predict(X).shape == Y.shape
    with pytest.raises(ValueError, match="name of a built-in candidate"):
        FBetaAuto(candidates=[("sized", own[0][1])]).fit(X, Y)
    with pytest.raises(ValueError, match="leaves nothing else"):
        FBetaAuto(replace=True).fit(X, Y)


def test_large_data_and_no_time_leave_a_first_model(monkeypatch):
    monkeypatch.setattr(searching, "PILOT_ROWS", 50)
    X, Y, _, _ = make_calibrated(200, n_labels=2, n_features=6)
    ticks = itertools.count()
    search = prepared(X, Y, Clock(lambda: float(next(ticks)), 1e-9))
    model = search.run()
    assert not search.found
    assert len(model.members) == 1
    clf = FBetaAuto(time_limit=1e-6, cv=2).fit(X, Y)
    assert clf.predict(X).shape == Y.shape


def test_a_first_model_that_is_too_large_is_that_of_another_map(monkeypatch):
    monkeypatch.setattr(searching, "PILOT_ROWS", 50)
    X, Y, _, _ = make_calibrated(120, n_labels=2, n_features=6)
    wide = sp.hstack([np.exp(X), sp.csr_array((120, 10_000))], format="csr")
    for name in ("EXACT_ROWS", "LANDMARKS"):
        monkeypatch.setattr(auto, name, 20)
    for most, count in ((8 * 4 * 10_000, 1), (10, 0)):
        monkeypatch.setattr(searching, "MAX_MODEL_BYTES", most)
        search = prepared(wide, Y, Clock(lambda: 0.0, 100.0))
        search._pilot()
        assert len(search.fallback.found if count else ()) == count
        assert (search.fallback is None) == (count == 0)
    monkeypatch.setattr(searching, "MAX_MODEL_BYTES", 8 * 4 * 10_000)
    clf = FBetaAuto(time_limit=1e-6, cv=2).fit(wide, Y)
    assert clf.predict(wide).shape == Y.shape


def test_members_with_small_weights_are_dropped_where_fits_would_end_too_late(data, monkeypatch):
    search = prepared(*data, Clock(lambda: 0.0, 10.0), kinds=True)
    for model in ("sized", "joint"):
        search._try(("raw", model))
    given = np.array([0.5, 0.3, 0.2])
    monkeypatch.setattr(Search, "weights", lambda own: (given.copy(), 1.0))
    for seconds, count in ((3.0, 3), (4.0, 2), (1e9, 1)):
        search.found = {
            pair: [replace(c, row_seconds=seconds / len(data[0])) for c in some]
            for pair, some in search.found.items()
        }
        model = search.average()
        kept = sorted((row["weight"] for row in model.leaderboard), reverse=True)
        np.testing.assert_allclose(kept[:count], given[:count] / given[:count].sum())
        assert not any(kept[count:])
        assert len(model.members) == count
        # the score is that of what is left
        mixture = LabelStatistics.mixture(
            [c.statistics for c in search.candidates[:count]], kept[:count]
        )
        assert model.score == pytest.approx(search.trial.calibration(mixture)[1])


def test_fits_to_all_rows_are_expected_once_for_both_kinds_of_a_forest(data):
    X, Y = data
    search = prepared(X, Y, Clock(lambda: 0.0, 10.0), kinds=True)
    search.models = {**search.models, "forest": FBetaForest(n_estimators=3, random_state=0)}
    for model in ("forest", "sized"):
        search._try(("raw", model))
    forest, same, sized, independent = (candidate.row_seconds for candidate in search.candidates)
    assert forest == same
    # the fits of the trial had half of the rows
    growth = 2**searching.ROWS_POWER
    every = 100 * growth * (forest + sized + independent)
    assert search._refits(range(4), 100) == pytest.approx(every)
    assert search._refits([1], 100) == pytest.approx(100 * growth * forest)
    # and so is a map whose features are not at hand any more, or not those of all rows
    search.map_seconds = {"raw": 5.0}
    assert search._refits([1], 100) == pytest.approx(100 * growth * forest)
    assert search._refits([1], 200) == pytest.approx(200 * 4**searching.ROWS_POWER * forest + 10.0)
    search.seen.clear()
    assert search._refits([0, 1], 100) == pytest.approx(100 * growth * forest + 5.0)


def test_the_time_of_a_fit_to_all_rows_is_that_of_the_best_alpha(data, monkeypatch):
    X, Y = data[0], form_of(data[1]).read(data[1])
    ((train, test), _) = make_folds(2, X, Y)
    ticks = itertools.accumulate(itertools.count())  # the fits take 1, 3, 5, ... seconds
    monkeypatch.setattr(folding, "perf_counter", lambda: float(next(ticks)))
    trial = Trial(Y, None, [(train, test)], 1.0)
    (quick,) = trial.try_out("", SizedClassifier(), X, [0.01, 1.0, 100.0])
    took = {100.0: 1.0, 1.0: 3.0, 0.01: 5.0}
    assert quick.path_seconds == sum(took.values())
    cold = members.COLD_START * members.REFIT_MARGIN  # the fit starts at zero, the path does not
    expected = cold * took[quick.estimator.alpha] / len(train)
    assert quick.row_seconds == pytest.approx(expected)
    ticks = itertools.count()
    (forest,) = trial.try_out("", FBetaForest(n_estimators=3, random_state=0), X, None)
    assert forest.row_seconds == pytest.approx(members.REFIT_MARGIN / len(train))


class TimedPilot:
    """A search of many rows whose first trial took the seconds that it is given."""

    def __init__(self, monkeypatch, limit, **seconds):
        monkeypatch.setattr(searching, "PILOT_ROWS", 50)
        self.X, Y, _, _ = make_calibrated(2000, n_labels=2, n_features=6)
        self.Y, self.told, plain = form_of(Y).read(Y), [], Trial.try_out
        folds = [(np.arange(400, 2000), np.arange(400))]

        seconds["row_seconds"] *= (25 / 2000) ** searching.ROWS_POWER  # 25 rows were fitted

        def try_out(own, *args, **options):
            first, *others = plain(own, *args, **options)
            few = own.Y.shape[0] == 50
            return [replace(first, **seconds) if few else first, *others]

        monkeypatch.setattr(Trial, "try_out", try_out)
        self.search = prepared(self.X, Y, Clock(lambda: 0.0, limit), fewer_folds=True)
        self.search.trial = Trial(self.Y, None, folds, 1.0)
        self.search.report = self.told.append


def test_the_first_trial_has_as_many_rows_as_there_is_time_for(monkeypatch):
    # 0.01 s for each row of a fit, and 0.25 s for 25 rows that are held out; all rows take 20 s
    seconds = {"seconds": 1.25, "path_seconds": 1.0, "row_seconds": 0.01}
    for limit in (200.0, 30.0, 20.5):
        search = TimedPilot(monkeypatch, limit, **seconds).search
        search._pilot()
        ((train, test),) = search.trial.folds
        end = min(0.9 * limit, limit - 20.0)
        assert search._end_of_trials() == pytest.approx(end)
        # the one alpha that was best is tried, and 16 times as many rows are held out
        row = 0.01 * (25 / 2000) ** searching.ROWS_POWER
        full = 1600 * row + 16 * 0.25
        count = max(50, int(min(1.0, 0.6 * end / full) * 1600))
        assert (len(train), len(test)) == (count, 400)
        assert len(np.unique(train)) == count
        assert train.min() >= 400
        assert search.expected["sized"] == pytest.approx(full * count / 1600)
        monkeypatch.undo()


def test_one_split_takes_the_alphas_and_the_map_that_are_best_on_some_rows(monkeypatch):
    monkeypatch.setattr(searching, "PILOT_ROWS", 400)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 2))
    Y = np.stack([X[:, 0] * X[:, 1] > 0, X[:, 0] * X[:, 1] < 0.5], axis=1).astype(int)
    search = prepared(X, Y, Clock(lambda: 0.0, 100.0), fewer_folds=True, kinds=True)
    search.trial = replace(search.trial, folds=search.trial.folds[:1])
    tried, plain = [], Trial.try_out

    def try_out(own, name, estimator, Z, alphas, **options):
        found = plain(own, name, estimator, Z, alphas, **options)
        tried.append((own.Y.shape[0], name, alphas, {c.estimator.alpha for c in found}))
        return found

    monkeypatch.setattr(Trial, "try_out", try_out)
    search._pilot()
    order = search._order()
    first = next(order)
    # no line parts the labels: a kernel is better, and comes first
    assert "kernel" in first[0]
    assert {name for _, name, *_ in tried} == {f"{name}: sized" for name in search.maps}
    assert search._try(first)
    (best,) = [found for n, name, _, found in tried if n == 400 and name.startswith(f"{first[0]}:")]
    n, name, alphas, _ = tried[-1]
    assert (n, name, alphas) == (1200, ": ".join(first), sorted(best))
    assert search._try((first[0], "joint"))
    assert [(n, len(alphas)) for n, _, alphas, _ in tried[-2:]] == [(400, 8), (1200, 1)]


@pytest.mark.parametrize(("row_seconds", "rows"), [(0.002, 2000), (0.009999, 1000), (1.0, 50)])
def test_a_first_model_is_fitted_to_the_rows_that_there_is_time_for(monkeypatch, row_seconds, rows):
    seconds = {"seconds": 1e6, "path_seconds": 1e6, "row_seconds": row_seconds}
    timed = TimedPilot(monkeypatch, 10.0, **seconds)
    timed.search.fewer_folds = False
    model = timed.search.run(None)
    assert not timed.search.found  # no trial of all rows was begun
    assert "begin" not in [event.event for event in timed.told]
    words = "all" if rows == 2000 else f"{rows} of 2000"
    assert f"to {words} rows" in timed.told[-1].detail
    taken = np.linspace(0, 2000, rows, endpoint=False).astype(int)
    (member,), (mapping,) = model.members, model.maps
    alone = SizedClassifier(alpha=member.alpha).fit(
        mapping.transform(timed.X)[taken], timed.Y[taken]
    )
    np.testing.assert_array_equal(member.coef_, alone.coef_)


def test_large_tables_hold_out_fewer_rows_where_these_have_many_statistics(monkeypatch):
    monkeypatch.setattr(auto, "MIN_HELD_OUT_ROWS", 20)
    _, Y, _, _ = make_calibrated(400, n_labels=2, n_features=6)
    for numbers, count in ((3e7, 100), (200, 50), (1, 20)):  # 2 labels with 2 sizes: 4 numbers
        monkeypatch.setattr(auto, "MAX_DECODED_NUMBERS", numbers)
        ((train, test),) = auto._default_cv(form_of(Y).read(Y), True)
        assert (len(train), len(test)) == (400 - count, count)
        assert np.array_equal(np.sort(np.append(train, test)), np.arange(400))
    monkeypatch.setattr(auto, "MAX_TRAINING_ROWS", 30)
    ((train, test),) = auto._default_cv(form_of(Y).read(Y), True)
    assert (len(train), len(test), len(np.intersect1d(train, test))) == (30, 20, 0)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_what_is_a_large_table_depends_on_the_time_there_is(make):
    for rows, columns, large in (
        (5000, 256, (True, False, False)),  # one split has 1,250 rows to compare on
        (3000, 400, (False, False, False)),  # too few rows for one split
        (20_000, 256, (True, True, True)),
    ):
        X = make(np.ones((rows, columns), dtype=np.float32))
        assert tuple(auto.is_large(X, limit) for limit in (30, 60, None)) == large


def test_fewer_folds_are_used_where_time_is_short(monkeypatch):
    monkeypatch.setattr(searching, "PILOT_ROWS", 50)
    X, Y, _, _ = make_calibrated(200, n_labels=2, n_features=6)
    for limit, count in ((1e9, 2), (1e-9, 1)):
        search = prepared(X, Y, Clock(limit=limit))
        search.fewer_folds = True
        search._pilot()
        assert len(search.trial.folds) == count
        assert search.fallback is not None


def test_slow_models_come_last():
    X, Y, _, _ = make_calibrated(300, n_labels=2, n_features=6)
    search = prepared(X, Y, Clock(lambda: 0.0, None), refine=True)
    search.models = auto.auto_models(1.0, 0, X)
    seen = []
    for pair in search._order():
        if pair not in seen:
            seen.append(pair)
            search.failed[pair] = "not tried"
    models = [model for _, model in seen]
    plain = sum(search._landmarks(name) is None for name in search.maps)
    assert models[:plain] == ["sized"] * plain
    # one of the kernels before the other kinds of models, whose times are not known here
    assert seen[plain] == ("kernel 0.25", "sized")
    assert seen[plain + 1][1] == "neighbours"
    slow = [models.index(name) for name in searching.SLOW_NAMES]
    assert max(models.index(name) for name in searching.FOREST_NAMES) < min(slow)
    # few rows: fewer maps
    assert "quantiles, kernel 0.25" in search.maps
    assert list(feature_maps(X[:100], 0)) == ["standardised", "kernel 0.25", "RBF kernel", "raw"]


def test_kinds_of_models_come_in_the_order_of_their_time():
    X, Y, _, _ = make_calibrated(600, n_labels=2, n_features=6)
    search = prepared(X, Y, Clock(lambda: 0.0, 100.0))
    search.models = auto.auto_models(1.0, 0, X)
    search.expected = dict.fromkeys(search.models, 1.0)
    candidate = search.trial.try_out("", SizedClassifier(), X, (1.0,))[0]
    kernels = [name for name in search.maps if search._landmarks(name)]
    for seconds in (0.01, 0.5, 2.0):  # at least 300 landmarks over 6 features: 15 times as long
        search.found = {("standardised", "sized"): [replace(candidate, seconds=seconds)]}
        order = list(itertools.islice(search._order(), 20))
        places = [order.index((name, "sized")) for name in kernels]
        forest = order.index(("raw", searching.FOREST_NAMES[0]))
        # one kernel comes first where it takes less time than a forest, which takes a second
        assert (min(places) < forest) == (seconds == 0.01)
        assert sorted(places)[1] > order.index(("raw", searching.BOOSTED_NAMES[1]))
        assert order.index(("raw", "sized")) < forest
        assert {(name, "sized") for name in kernels} < set(order)


def test_a_forest_has_as_many_trees_as_there_is_time_for():
    X, Y, _, _ = make_calibrated(600, n_labels=2, n_features=6)
    search = prepared(X, Y, Clock(lambda: 0.0, 100.0))
    name, forest = "forest, random splits", FBetaForest(n_estimators=200)
    for seconds, trees in ((1.0, 200), (30.0, 100), (1000.0, 50), (np.inf, 200)):
        search.models, search.expected = {name: forest}, {name: seconds}
        search._limit_trees(("raw", name))
        assert search.models[name].n_estimators == trees
        assert search._seconds(("raw", name)) == pytest.approx(seconds * trees / 200)
    few, *others = searching.BOOSTED_NAMES
    search.models, search.expected = auto.auto_models(1.0, 0, X), {few: 1000.0}
    search._limit_trees(("raw", few))  # of few trees there are no fewer
    assert search.models[few].n_estimators == auto.FEW_TREES
    assert search._seconds(("raw", few)) == 1000.0
    for name in others:
        boosted = auto.auto_models(1.0, 0, X)[name]
        for seconds, trees in ((20.0, 100), (40.0, 50), (25.0, 80), (1000.0, 50)):
            search.models, search.expected = {name: boosted}, {name: seconds}
            search._limit_trees(("raw", name))
            assert search.models[name].n_estimators == trees


def test_trees_of_few_rows_have_an_expected_time():
    X, Y, _, _ = make_calibrated(300, n_labels=2, n_features=6)
    search = prepared(X, Y, Clock(limit=100.0))
    search.models = auto.auto_models(1.0, 0, X)
    trees = {*searching.FOREST_NAMES, *searching.BOOSTED_NAMES}
    assert {name for name in search.models if search._seconds(("raw", name)) > 0} == trees
    search.clock.limit = 1e-3  # a few trees would take longer
    search.expected = {}
    name = searching.BOOSTED_NAMES[0]
    search._limit_trees(("raw", name))
    assert search._seconds(("raw", name)) == np.inf


def test_the_time_of_neighbours_grows_with_training_rows_and_held_out_rows(monkeypatch):
    X, Y, _, _ = make_calibrated(2000, n_labels=2, n_features=6)
    now = [0.0]
    search = prepared(X, Y, Clock(lambda: now[0], 100.0))
    search.models = auto.auto_models(1.0, 0, X)

    def try_out(own, *args, **options):
        now[0] += 0.5
        return []

    monkeypatch.setattr(Trial, "try_out", try_out)
    for name in searching.NEIGHBOUR_NAMES:  # 400 rows, of which half are held out; two folds of all
        assert average.probed_seconds(search, "raw", name) == 0.5 * (2000 / 200) * (1000 / 200)
    assert average.probed_seconds(search, "raw", "joint") == 0.5 * average.PROBE_ALPHAS * 10


def test_a_kernel_has_as_many_columns_as_there_is_time_for():
    X, Y, _, _ = make_calibrated(600, n_labels=2, n_features=10)
    search = prepared(X, Y, Clock(lambda: 0.0, 100.0))
    candidate = search.trial.try_out("", SizedClassifier(), X, (1.0,))[0]
    name = next(name for name in search.maps if search._landmarks(name))
    maps = {
        name: search.maps[name].set_params(nystroem__n_components=400),
        "raw": search.maps["raw"],
    }
    both = maps | {"second kernel": maps[name]}  # which leaves half of the time
    cases = ((0.1, 400, maps), (1.14, 350, maps), (0.57, 350, both), (100.0, 300, maps))
    for seconds, columns, own in cases:
        search.maps = own
        search.found = {("raw", "sized"): [replace(candidate, seconds=seconds)]}
        search._limit_landmarks()
        assert search._landmarks(name) == columns
    search.maps, search.X = maps, sp.csr_array(X)
    search._limit_landmarks()
    assert search._landmarks(name) == 400


def test_a_late_kernel_has_fewer_columns_instead_of_being_left_out():
    X, Y, _, _ = make_calibrated(600, n_labels=2, n_features=10)
    search = prepared(X, Y, Clock(lambda: 0.0, 100.0))
    candidate = search.trial.try_out("", SizedClassifier(), X, (1.0,))[0]
    search.found = {("raw", "sized"): [replace(candidate, seconds=6.0, row_seconds=0.0)]}
    pair = (next(name for name in search.maps if search._landmarks(name) == 600), "sized")
    assert search._seconds(pair) > 90  # of the time limit: it would not be tried
    search._limit_columns(pair, 0.8 * 90)
    assert search._seconds(pair) == pytest.approx(0.8 * 90, rel=0.01)
    columns = search._landmarks(pair[0])
    search._limit_columns(pair, 0.8 * 90)
    assert search._landmarks(pair[0]) == columns
    search.found = {("raw", "sized"): [replace(candidate, seconds=1e3, row_seconds=0.0)]}
    search._limit_columns(pair, 0.8 * 90)
    assert search._landmarks(pair[0]) == 300


def test_probes_of_kernels_do_not_warn(recwarn):
    X, Y, _, _ = make_calibrated(600, n_labels=2, n_features=6)
    search = prepared(X, Y, Clock(limit=100.0))
    name = next(name for name in search.maps if (search._landmarks(name) or 0) > 400)
    assert 0 < average.probed_seconds(search, name, "cardinality") < np.inf
    assert not recwarn.list


def test_half_decades_are_tried_between_the_strengths(data):
    X, Y = data
    trial = prepared(X, Y, Clock()).trial
    for grid in ((0.1, 1.0), (10.0, 100.0, 1000.0)):
        (candidate,) = trial.try_out("", FBetaClassifier(), X, grid, refine=True)
        (plain,) = trial.try_out("", FBetaClassifier(), X, grid)
        assert grid[0] <= candidate.estimator.alpha <= grid[-1]
        assert candidate.score >= plain.score
    assert len(trial.try_out("", SizedClassifier(), X, (1.0,), kinds=True)) == 2


def test_statistics_are_kept_of_as_many_rows_as_memory_allows(monkeypatch):
    monkeypatch.setattr(members, "KEPT_BYTES", 0)
    X, Y, _, _ = make_calibrated(900, n_labels=2, n_features=6)
    search = prepared(X, Y, Clock(lambda: 0.0, None))
    rows, share = search.trial.kept_rows()
    assert len(rows) == len(np.unique(rows)) == 500
    assert share.sum() == pytest.approx(1)
    # of every fold as many
    assert [np.isin(rows, test).sum() for _, test in search.trial.folds] == [250, 250]
    assert search._try(("raw", "joint"))
    (candidate,) = search.candidates
    assert len(candidate.statistics) == 500
    paper = FBetaClassifierCV(cv=2).fit(X, Y)
    assert candidate.score == pytest.approx(paper.best_score_, abs=1e-12)
    assert search.average().score > 0.5


def test_what_fails_is_left_out(data):
    X, Y = data
    search = prepared(X, Y, Clock(lambda: 0.0, None))
    search.models = {**search.models, "joint": search.models["sized"].__class__(tol=-1.0)}
    search._try(("raw", "sized"))
    assert search._try(("raw", "joint"))
    assert "tol" in search.failed["raw", "joint"]


class Broken(ExtraTreesClassifier):
    """Trees whose fit fails."""

    def fit(self, X, y, sample_weight=None):
        raise self.error("the wire is cut")


@pytest.mark.parametrize("n", [100, 600])
@pytest.mark.parametrize("error", [ValueError, RuntimeError, TypeError, KeyError, CancelledError])
def test_own_candidates_that_fail_are_named(error, n, monkeypatch):
    monkeypatch.setattr(Broken, "error", error, raising=False)
    X, Y, _, _ = make_calibrated(n, n_labels=2, n_features=6)
    events, own = [], [("mine", Broken())]
    clf = FBetaAuto(cv=2, candidates=own, time_limit=1000, random_state=0)
    few, raw = {"sized": auto.auto_models(1.0, 0, X)["sized"]}, {"raw": feature_maps(X, 0)["raw"]}
    monkeypatch.setattr(auto, "auto_models", lambda *args: few)
    monkeypatch.setattr(auto, "feature_maps", lambda *args: raw)
    if error is CancelledError:  # not an error of the candidate
        with pytest.raises(CancelledError):
            clf.fit(X, Y)
        return
    with pytest.warns(UserWarning, match=rf"'raw: mine' is left out: {error.__name__}: .*wire"):
        clf.fit(X, Y, progress=events.append)
    (left,) = (e.detail for e in events if e.name == "raw: mine" and e.event == "left out")
    assert "the wire is cut" in left
    assert not any("mine" in row["name"] for row in clf.leaderboard_)
    with pytest.raises(error, match="the wire is cut") as raised:
        clf.set_params(replace=True).fit(X, Y)
    assert raised.value.__notes__ == ["the candidate is 'raw: mine'"]


def test_own_candidates_that_there_is_no_time_for_are_named(data):
    events, own = [], [(name, ExtraTreesClassifier(10)) for name in ("mine", "yours")]
    clf = FBetaAuto(cv=2, candidates=own, time_limit=1e-6, random_state=0)
    clf.fit(*data, progress=events.append)
    left = {e.name: e.detail for e in events if e.event == "left out"}
    assert left == dict.fromkeys(["raw: mine", "raw: yours"], "there is no time left")


def test_an_error_in_a_built_in_candidate_is_raised(data):
    search = prepared(*data, Clock(lambda: 0.0, None))
    search._try(("raw", "sized"))
    search.models = {**search.models, "joint": object()}
    with pytest.raises(TypeError, match="get_params") as raised:
        search._try(("raw", "joint"))
    assert raised.value.__notes__ == ["the candidate is 'raw: joint'"]


def test_what_needs_too_much_memory_is_left_out(data, monkeypatch):
    search = prepared(*data, Clock(lambda: 0.0, None))
    # 2 labels with 2 sizes and 6 features; the kernel has a landmark for every row
    assert search._bytes(("raw", "joint")) == 8 * 6 * 5
    assert search._bytes(("kernel 0.25", "sized")) == 8 * 100 * 4
    monkeypatch.setattr(searching, "MAX_MODEL_BYTES", 8 * 6 * 5 - 1)
    assert search._try(("raw", "joint"))
    assert search._try(("raw", "sized"))
    assert list(search.found) == [("raw", "sized")]
    assert "memory" in search.failed["raw", "joint"]


def test_weights_are_those_of_least_squares_unless_one_is_clearly_better(data, monkeypatch):
    search = prepared(*data, Clock(lambda: 0.0, None))
    for model in ("sized", "joint", "cardinality"):
        search._try(("raw", model))
    candidates = search.candidates
    parts = [candidate.statistics for candidate in candidates]
    rows, share = search.trial.kept_rows()
    truth = search.trial.Y[rows]
    kept = stacked_weights(search.trial.weights(candidates)[2]) >= members.MIN_WEIGHT
    again = np.zeros(3)
    own = [candidate for candidate, keep in zip(candidates, kept, strict=True) if keep]
    again[kept] = stacked_weights(search.trial.weights(own)[2])
    weights, value = search.weights()
    if (weights > 0).sum() > 1:
        np.testing.assert_allclose(weights, again)
        mean = LabelStatistics.mixture(parts, weights)
        achieved = fbeta_per_instance(truth, decode(mean), 1.0)
        assert value == pytest.approx(float(achieved @ share))
    # an average that is worse than the best alone by more than its standard error is not taken
    worse = LabelStatistics.from_marginals(1 - parts[0].marginals()).unfolded()
    object.__setattr__(candidates[0], "statistics", worse)
    object.__setattr__(candidates[0], "score", 0.0)
    monkeypatch.setattr(members, "stacked_weights", lambda gram: np.eye(3)[0][: len(gram) - 1])
    weights, value, _ = search.trial.weights(candidates, np.eye(4))
    best = int(np.argmax([candidate.score for candidate in candidates]))
    assert weights.tolist() == np.eye(3)[best].tolist()
    assert value == pytest.approx(candidates[best].score, abs=1e-6)
