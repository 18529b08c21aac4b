import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from xlm.evaluation.probe import choose_probes, fit_linear, fit_probes


def blobs(rng, count, classes=4, width=6, spread=1.0, scale=1.0):
    centres = np.random.default_rng(0).normal(size=(classes, width)) * 2
    labels = rng.integers(0, classes, size=count)
    return ((centres[labels] + spread * rng.normal(size=(count, width))) * scale).astype(np.float32), labels


def each(labels):
    """Every dev sentence is a template of its own."""
    return list(map(str, range(len(labels))))


def test_penalty_means_what_the_formula_says():
    vectors, labels = blobs(np.random.default_rng(1), 60, classes=3, width=4, spread=2.0)
    penalty = 2.5

    def objective(flat):
        weights, bias = flat[:12].reshape(3, 4), flat[12:]
        scores = log_softmax(vectors @ weights.T + bias, axis=1)
        return -scores[np.arange(60), labels].sum() + penalty / 2 * (weights**2).sum()

    found = minimize(objective, np.zeros(15), method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-9}).x
    fitted = fit_linear(vectors.astype(np.float64), labels, penalty)
    np.testing.assert_allclose(fitted.coef_, found[:12].reshape(3, 4), atol=2e-3)


def test_standardising_makes_units_irrelevant():
    vectors, labels = blobs(np.random.default_rng(2), 120)
    units = np.array([1e-3, 1.0, 1e3, 5.0, 0.1, 70.0])
    plain, scaled = fit_probes(vectors, labels, [1.0])[0], fit_probes(vectors * units + 9.0, labels, [1.0])[0]
    fresh, _ = blobs(np.random.default_rng(3), 200)
    assert (plain.predict(fresh) == scaled.predict(fresh * units + 9.0)).mean() > 0.99


def test_feature_that_never_varies_does_no_harm():
    vectors, labels = blobs(np.random.default_rng(4), 80)
    vectors[:, 0] = 7.0
    assert np.mean(fit_probes(vectors, labels, [1.0])[0].predict(vectors) == labels) > 0.8


def test_dev_chooses_the_layer_that_knows_and_the_penalty():
    rng = np.random.default_rng(5)
    train, labels = blobs(rng, 200)
    dev, dev_labels = blobs(rng, 100)
    noise = lambda count: rng.normal(size=(count, 6)).astype(np.float32)  # noqa: E731
    layered_train, layered_dev = np.stack([noise(200), train]), np.stack([noise(100), dev])
    subsets = [np.arange(180), np.arange(20, 200)]
    choice, probes = choose_probes([layered_train] * 2, [layered_dev] * 2, labels, dev_labels, each(dev_labels), subsets, (0.1, 1e6))
    assert choice.layer == 1
    assert choice.penalty == pytest.approx(0.1)
    assert choice.dev_accuracy == pytest.approx(choice.table[1, 1])
    assert len(probes) == 2
    hits = np.mean([np.mean(probe.predict(dev) == dev_labels) for probe in probes])
    assert hits == pytest.approx(choice.dev_accuracy)


def test_each_seed_trains_on_its_own_rows_only():
    train, labels = blobs(np.random.default_rng(6), 100)
    poisoned = labels.copy()
    poisoned[50:] = (labels[50:] + 1) % 4
    _, probes = choose_probes([train[None]], [train[None, :50]], poisoned, labels[:50], each(labels[:50]), [np.arange(50)], (1.0,))
    alone = fit_probes(train[:50], labels[:50], [1.0])[0]
    assert (probes[0].predict(train) == alone.predict(train)).all()


def test_ties_go_to_the_stronger_penalty():
    train = np.array([[-1.0], [1.0]] * 10, dtype=np.float32)
    labels = np.array([0, 1] * 10)
    choice, _ = choose_probes([train[None]], [train[None]], labels, labels, each(labels), [np.arange(20)], (0.1, 10.0, 1.0))
    assert choice.penalty == 10.0


def test_strongest_penalty_within_a_standard_error_of_the_best():
    rng = np.random.default_rng(7)
    train, labels = blobs(rng, 300, spread=3.0)
    dev, dev_labels = blobs(rng, 150, spread=3.0)
    penalties = (0.01, 1.0, 100.0, 1e3, 1e4, 1e6)
    templates = [str(number // 3) for number in range(150)]
    choice, _ = choose_probes([train[None]], [dev[None]], labels, dev_labels, templates, [np.arange(300)], penalties)
    by_penalty = {}
    for penalty in penalties:
        right = fit_probes(train, labels, [penalty])[0].predict(dev) == dev_labels
        clusters = right.reshape(50, 3).sum(axis=1)
        error = np.std(clusters - 3 * right.mean(), ddof=1) * np.sqrt(50) / 150
        by_penalty[penalty] = right.mean(), error
    best, error = max(by_penalty.values())
    assert choice.penalty == max(penalty for penalty, (accuracy, _) in by_penalty.items() if accuracy >= best - error)
    assert choice.penalty > min(penalties)


def test_penalties_in_a_row_find_what_each_finds_alone():
    vectors, labels = blobs(np.random.default_rng(8), 200, spread=2.0)
    penalties = [30.0, 3.0, 0.3]
    for probe, penalty in zip(fit_probes(vectors, labels, penalties), penalties, strict=True):
        alone = fit_linear(((vectors.astype(np.float64) - probe.mean) / probe.deviation), labels, penalty)
        np.testing.assert_allclose(probe.classifier.coef_, alone.coef_, atol=5e-3)


def test_one_deviation_for_all_keeps_what_whitening_made():
    vectors, labels = blobs(np.random.default_rng(9), 200)
    vectors = vectors * np.array([1, 1, 1, 10, 10, 10], dtype=np.float32)
    probe = fit_probes(vectors, labels, [1.0], one_deviation=True)[0]
    assert np.ptp(probe.deviation) == 0.0
    assert probe.deviation[0] == pytest.approx(np.sqrt(vectors.astype(np.float64).var(axis=0).mean()), rel=1e-6)
