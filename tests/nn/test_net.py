"""Networks as estimators: conventions, seeds, early stopping, any body, odd data."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

torch = pytest.importorskip("torch", reason="fbeta.nn needs the extra torch")
pytest.importorskip("skorch", reason="FBetaNet needs the extra torch")

from fbeta import LabelStatistics, fbeta_score  # noqa: E402
from fbeta.datasets import CalibratedLaw  # noqa: E402
from fbeta.nn import CardinalityHead, FBetaNet, JointHead  # noqa: E402

from ..cases import slow  # noqa: E402

SMALL = {"hidden": 8, "max_epochs": 3, "lr": 0.01, "random_state": 0}
HEADS = pytest.mark.parametrize("head", ["cardinality", "joint"])
# a step of gradient descent is on a batch: a row of weight two is not the row twice
INEXACT = {
    f"check_sample_weight_equivalence_on_{kind}_data": "batches differ"
    for kind in ("dense", "sparse")
}


@pytest.mark.slow
@parametrize_with_checks(
    [FBetaNet(**SMALL)], expected_failed_checks=lambda _: INEXACT, xfail_strict=False
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    law = CalibratedLaw(n_labels=3, n_features=12, random_state=0)
    return law.sample(1500, random_state=1), law.sample(1000, random_state=2)


@pytest.mark.parametrize("head", [slow("cardinality"), "joint"])
def test_it_learns(head, data):
    train, test = data
    # the best epoch is the twelfth
    net = FBetaNet(head=head, hidden=32, lr=0.01, dropout=0.1, max_epochs=14, random_state=0)
    net.fit(train.X, train.Y)
    assert test.regret(net.predict(test.X)) < 0.03
    assert isinstance(net.networks_[0].head, {"cardinality": CardinalityHead}.get(head, JointHead))
    # the networks serve every beta
    few, many = (net.predict(test.X, beta=b).sum() for b in (0.2, 5.0))
    assert few < many
    expected = net.expected_fbeta(test.X).mean()
    assert expected == pytest.approx(fbeta_score(test.Y, net.predict(test.X)), abs=0.06)


def test_seeds_are_averaged(data):
    train, test = data
    few = {**SMALL, "random_state": 5}
    both = FBetaNet(n_seeds=2, **few).fit(train.X[:200], train.Y[:200])
    q = both.predict_statistics(test.X[:20])
    single = []
    for network in both.networks_:
        with torch.no_grad():
            logits = network(torch.tensor(test.X[:20], dtype=torch.float32))
            single.append(network.head.statistics(logits).label_statistics())
    mean = LabelStatistics.mixture(single)
    np.testing.assert_allclose(q.joint, mean.joint, rtol=1e-5)
    assert not np.allclose(single[0].joint, single[1].joint)
    again = clone(both).fit(train.X[:200], train.Y[:200])
    np.testing.assert_array_equal(again.predict_proba(test.X), both.predict_proba(test.X))


def test_the_best_epoch_is_kept(data):
    """What is kept is what as many epochs as the best one make, however many follow."""
    train, test = data
    X, Y = train.X[:300], train.Y[:300]
    options = {"hidden": 16, "lr": 0.05, "random_state": 0}
    for patience, most in ((20, 12), (2, 200)):
        long = FBetaNet(max_epochs=most, patience=patience, **options).fit(X, Y)
        (best,) = long.n_epochs_
        assert best < most
        short = FBetaNet(max_epochs=best, **options).fit(X, Y)
        np.testing.assert_array_equal(short.predict_proba(test.X), long.predict_proba(test.X))


def test_bodies(data):
    train, test = data
    X, Y = train.X[:200], train.Y[:200]
    made = []

    def factory(d):
        made.append(d)
        return torch.nn.Sequential(torch.nn.Linear(d, 5), torch.nn.Tanh())

    net = FBetaNet(factory, n_seeds=2, **SMALL).fit(X, Y)
    assert made == [12, 12]
    assert net.networks_[0].head.linear.in_features == 5
    body = torch.nn.Linear(12, 4)
    before = body.weight.detach().clone()
    own = FBetaNet(body, **SMALL).fit(X, Y)
    assert torch.equal(body.weight, before)
    assert not torch.equal(own.networks_[0].body.weight, before)
    assert own.predict(test.X).shape == test.Y.shape


def test_global_random_numbers_are_left_alone(data):
    train, _ = data
    state = torch.random.get_rng_state()
    FBetaNet(**SMALL).fit(train.X[:50], train.Y[:50])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_pipeline_pickle_and_sparse(data):
    train, test = data
    X, Y = train.X[:100], train.Y[:100]
    pipeline = make_pipeline(StandardScaler(), FBetaNet(**SMALL)).fit(X, Y)
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.predict(test.X), pipeline.predict(test.X))
    dense, sparse = (
        FBetaNet(**SMALL).fit(form(X), Y).predict_proba(form(test.X))
        for form in (np.asarray, sp.csr_array)
    )
    np.testing.assert_allclose(dense, sparse, rtol=1e-6)


def test_model_files_hold_no_networks(data, tmp_path):
    pytest.importorskip("skops", reason="model files need the extra cli")
    from fbeta.storage.model_files import ModelFileError, save_model

    net = FBetaNet(**SMALL).fit(data[0].X[:50], data[0].Y[:50])
    with pytest.raises(ModelFileError, match="FBetaNet"):
        save_model(tmp_path / "net.skops", net)
    assert not (tmp_path / "net.skops").exists()


@pytest.mark.parametrize("labels", ["all empty", "constant", "one label", "two rows"])
@HEADS
def test_odd_data(labels, head):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 if labels == "two rows" else 20, 3))
    Y = (rng.random((len(X), 1 if labels == "one label" else 4)) < 0.5).astype(int)
    if labels in ("all empty", "constant"):
        Y[:] = int(labels == "constant")
    net = FBetaNet(head=head, **SMALL).fit(X, Y)
    assert net.predict(X).shape == Y.shape
    assert np.isfinite(net.predict_proba(X)).all()


def test_weights_count(data):
    train, test = data
    X, Y = train.X[:300], train.Y[:300]
    weight = np.where(Y.sum(1) > 1, 20.0, 0.1)
    plain = FBetaNet(**SMALL).fit(X, Y)
    weighted = FBetaNet(**SMALL).fit(X, Y, sample_weight=weight)
    assert weighted.predict_proba(test.X).sum() > plain.predict_proba(test.X).sum()


@pytest.mark.parametrize(
    ("name", "value"), [("head", "other"), ("hidden", 0), ("dropout", 1.0), ("lr", 0.0),
                        ("validation_fraction", 1.5), ("n_seeds", 0)],
)  # fmt: skip
def test_what_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        FBetaNet(**{**SMALL, name: value}).fit([[0.0], [1.0]], [[0, 1], [1, 1]])


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")


@gpu
@HEADS
def test_on_a_gpu(head, data):
    train, test = data
    net = FBetaNet(device="cuda", head=head, hidden=32, lr=0.01, max_epochs=30, random_state=0)
    net.fit(train.X, train.Y)
    assert test.regret(net.predict(test.X)) < 0.05
    assert next(net.networks_[0].parameters()).is_cuda


@gpu
@HEADS
@pytest.mark.parametrize("body", [None, "cpu", "cuda"])
def test_weights_sparse_features_and_bodies_on_a_gpu(head, body, data):
    train, test = data
    X, Y = sp.csr_array(train.X[:300]), train.Y[:300]
    own = None if body is None else torch.nn.Linear(12, 4, device=body)
    weight = np.where(Y.sum(1) > 1, 20.0, 0.1)
    options = {**SMALL, "head": head, "device": "cuda", "max_epochs": 10}
    plain = FBetaNet(own, **options).fit(X, Y)
    weighted = FBetaNet(own, **options).fit(X, Y, sample_weight=weight)
    assert weighted.predict_proba(test.X).sum() > plain.predict_proba(test.X).sum()


def flat(shape):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(shape)), 5))


def test_images_tokens_and_tensors(data):
    train, test = data
    X, Y = train.X[:200].reshape(200, 1, 3, 4), train.Y[:200]
    net = FBetaNet(flat, **SMALL).fit(torch.tensor(X), Y)
    assert net.predict(test.X.reshape(-1, 1, 3, 4)).shape == test.Y.shape
    with pytest.raises(ValueError, match="rows of X have shape"):
        net.predict(test.X.reshape(-1, 1, 4, 3))
    with pytest.raises(ValueError, match="give a body"):
        FBetaNet(**SMALL).fit(X, Y)
    tokens = (train.X[:200] > 0).astype(np.int64)
    body = torch.nn.Sequential(torch.nn.Embedding(2, 3), torch.nn.Flatten())
    net = FBetaNet(body, input_type="int64", **SMALL).fit(tokens, Y)
    assert net.predict(tokens).shape == Y.shape
    for same in (tokens.astype(np.float32), tokens.tolist(), sp.csr_array(tokens * 1.0)):
        np.testing.assert_array_equal(net.predict(same), net.predict(tokens))
    for other in (tokens + 0.5 * np.eye(*tokens.shape), sp.csr_array(0.5 * tokens)):
        for method in (net.predict, lambda X: net.fit(X, Y), lambda X: net.partial_fit(X, Y)):
            with pytest.raises(ValueError, match=r"X has [01]\.5, which input_type='int64' cannot"):
                method(other)


def test_own_validation_data_callbacks_and_history(data):
    from skorch.callbacks import LRScheduler

    train, _ = data
    held = (train.X[200:300], train.Y[200:300])
    schedule = LRScheduler("StepLR", step_size=1, gamma=0.5)
    net = FBetaNet(validation_data=held, callbacks=[schedule], n_seeds=2, **SMALL)
    net.fit(train.X[:200], train.Y[:200])
    assert [len(history) for history in net.history_] == [3, 3]
    last = net.history_[0][-1]
    assert last["event_lr"] == pytest.approx(0.0025)
    network = net.networks_[0]
    best = max(net.history_[0][:, "valid_fbeta"])
    with torch.no_grad():
        labels = network.head.decode(network(torch.tensor(held[0], dtype=torch.float32)))
    assert fbeta_score(held[1], labels.numpy()) == pytest.approx(best, abs=1e-6)


def test_validation_data_are_encoded_as_the_training_data_are(data):
    pandas, (train, _) = pytest.importorskip("pandas"), data
    frame = pandas.DataFrame(train.X[:300]).add_prefix("x").assign(day="2024-01-01")
    rows, held = (frame[:200], train.Y[:200]), (frame[200:], train.Y[200:300])
    net = FBetaNet(validation_data=held, **SMALL).fit(*rows)
    held = (frame[200:][frame.columns[::-1]], train.Y[200:300])
    same = FBetaNet(validation_data=held, **SMALL).fit(*rows)
    assert net.history_[0][:, "valid_fbeta"] == same.history_[0][:, "valid_fbeta"]
    assert max(net.history_[0][:, "valid_fbeta"]) == pytest.approx(net.score(*held), abs=1e-6)


def test_partial_fit_goes_on(data):
    train, test = data
    X, Y = train.X[:400], train.Y[:400]
    net = FBetaNet(**{**SMALL, "n_seeds": 2})
    for rows in np.array_split(np.arange(400), 4):
        net.partial_fit(X[rows], Y[rows])
    assert net.n_epochs_ == [4, 4]
    again = pickle.loads(pickle.dumps(net))
    before = net.predict_proba(test.X)
    again.partial_fit(X, Y)
    np.testing.assert_array_equal(net.predict_proba(test.X), before)
    assert not np.allclose(again.predict_proba(test.X), before)
    fitted = FBetaNet(**SMALL).fit(X, Y)
    fitted.partial_fit(X, Y)
    assert fitted.predict(test.X).shape == test.Y.shape


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.parametrize(("head", "seeds"), [("cardinality", 2), ("joint", 1)])
def test_onnx_runtime_predicts_the_same(head, seeds, data):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    train, test = data
    net = FBetaNet(head=head, n_seeds=seeds, **SMALL).fit(train.X[:200], train.Y[:200])
    session = onnxruntime.InferenceSession(net.to_onnx().SerializeToString())
    X = test.X[:50].astype(np.float32)
    for beta in (None, 2.0):
        feeds = {} if beta is None else {"beta": np.array(beta)}
        labels, expected, p = session.run(None, {"X": X, **feeds})
        np.testing.assert_array_equal(labels, net.predict(X, beta=beta))
        np.testing.assert_allclose(expected, net.expected_fbeta(X, beta=beta), rtol=1e-5)
        np.testing.assert_allclose(p, net.predict_proba(X), rtol=1e-5)
    shapes = [part.shape for part in session.run(None, {"X": X[:0]})]
    assert shapes == [(0, 3), (0,), (0, 3)]
    with pytest.raises(ValueError, match="beta must be positive"):
        net.set_params(beta=0.0).to_onnx()
