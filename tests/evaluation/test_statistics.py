import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.errors import UserError
from xlm.evaluation.statistics import TemplateBootstrap, clustered_standard_error, holm, percentile_interval, two_sided_p


def bootstrap(templates, seeds=3, samples=400, key="test"):
    return TemplateBootstrap(templates, seeds=seeds, samples=samples, key=(key,), seed_key=("seeds", seeds))


def by_hand(draws, templates, values):
    """Take every sentence of every drawn template, once a draw, for every drawn seed: no matrices."""
    names = sorted(set(templates))
    means = []
    for template_counts, seed_counts in zip(draws._template_counts, draws._seed_counts, strict=True):
        seed_means = []
        for seed, seed_count in enumerate(seed_counts):
            drawn = [
                value
                for name, count in zip(names, template_counts, strict=True)
                for template, value in zip(templates, values[seed if len(values) > 1 else 0], strict=True)
                if template == name
                for _ in range(int(count))
            ]
            seed_means += [np.mean(drawn)] * int(seed_count)
        means.append(np.mean(seed_means))
    return np.array(means)


@given(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=15), st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_distribution_is_the_mean_of_drawn_sentences(templates, seeds, state):
    values = np.random.default_rng(state).integers(0, 2, size=(seeds, len(templates)))
    draws = bootstrap(templates, seeds, samples=20)
    np.testing.assert_allclose(draws.distribution(values), by_hand(draws, templates, values), atol=1e-12)
    np.testing.assert_allclose(draws.distribution(values[:1]), by_hand(draws, templates, values[:1]), atol=1e-12)


def test_every_sample_draws_as_many_templates_and_seeds_as_there_are():
    draws = bootstrap([str(number) for number in range(50)])
    assert set(draws._template_counts.sum(axis=1)) == {50.0}
    assert set(draws._seed_counts.sum(axis=1)) == {3.0}
    assert 0.30 < (draws._template_counts == 0).mean() < 0.42  # (1 - 1/n)^n: some templates are left out


def test_sentences_of_one_template_widen_the_interval():
    rng = np.random.default_rng(0)
    right = rng.integers(0, 2, size=40)
    values = np.repeat(right, 25)[None]
    clustered = bootstrap(np.repeat([str(number) for number in range(40)], 25).tolist(), seeds=1)
    independent = bootstrap([str(number) for number in range(1000)], seeds=1)
    wide, narrow = clustered.interval(values), independent.interval(values)
    assert 4 < (wide[1] - wide[0]) / (narrow[1] - narrow[0]) < 6  # sqrt(25)


def test_pairing_narrows_a_difference_of_systems_that_fail_alike():
    rng = np.random.default_rng(1)
    ours = (rng.random((3, 600)) < 0.5).astype(float)
    theirs = np.where(rng.random((3, 600)) < 0.05, 0.0, ours)
    draws = bootstrap([str(number // 3) for number in range(600)])
    paired = percentile_interval(draws.distribution(ours - theirs))
    alone = draws.interval(ours)
    assert paired[0] > 0
    assert paired[1] - paired[0] < 0.5 * (alone[1] - alone[0])


def test_difference_is_the_difference_of_the_distributions():
    rng = np.random.default_rng(2)
    ours, theirs = rng.random((3, 90)), rng.random((1, 90))
    draws = bootstrap([str(number // 2) for number in range(90)])
    np.testing.assert_allclose(draws.distribution(ours - theirs), draws.distribution(ours) - draws.distribution(theirs), atol=1e-12)


def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(3)
    covered = 0
    for trial in range(200):
        difficulty = rng.beta(2, 3, size=80)  # mean .4
        values = (rng.random(320) < np.repeat(difficulty, 4)).astype(float)[None]
        low, high = bootstrap(np.repeat([str(n) for n in range(80)], 4).tolist(), seeds=1, samples=300, key=str(trial)).interval(values)
        covered += low <= 0.4 <= high
    assert 0.89 <= covered / 200 <= 0.99


def test_seed_draws_are_shared_between_languages_and_template_draws_are_not():
    templates = [str(number) for number in range(30)]
    german, greek = bootstrap(templates, key="de"), bootstrap(templates, key="el")
    assert (german._seed_counts == greek._seed_counts).all()
    assert (german._template_counts != greek._template_counts).any()


def test_same_key_same_interval():
    values = np.random.default_rng(4).integers(0, 2, size=(3, 60))
    templates = [str(number // 3) for number in range(60)]
    assert bootstrap(templates).interval(values) == bootstrap(templates).interval(values)


def test_shapes_that_do_not_fit_are_refused():
    draws = bootstrap(["a", "b"])
    with pytest.raises(ValueError, match="3 seeds x 2 sentences"):
        draws.distribution(np.zeros((2, 2)))
    with pytest.raises(UserError, match="without sentences"):
        bootstrap([])


def test_ratio_of_sums_is_resampled_template_by_template():
    rng = np.random.default_rng(2)
    templates = [f"t{number % 5}" for number in range(40)]
    bootstrap = TemplateBootstrap(templates, seeds=2, samples=400, key=("a",), seed_key=("b",))
    right, total = rng.integers(0, 3, (2, 40)).astype(float), rng.integers(0, 6, (2, 40)).astype(float)
    ratios = bootstrap.ratio_distribution(2 * right, total)
    assert ratios.shape == (400,)
    whole = np.mean(2 * right.sum(axis=1) / total.sum(axis=1))
    assert abs(ratios.mean() - whole) < 0.05
    # With the same count below every line, a ratio of sums is a mean.
    np.testing.assert_allclose(bootstrap.ratio_distribution(right, np.ones((2, 40))), bootstrap.distribution(right))
    assert (bootstrap.ratio_distribution(right, np.zeros((2, 40))) == 0).all()


def test_holm_is_that_of_its_paper():
    # Example: of .01, .04, .03, .005 the adjusted values are .03, .06, .06, .02 (R: p.adjust(p, "holm")).
    p_values = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    assert holm(p_values) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(holm(p_values)) == list(p_values)
    assert holm({"a": 0.7, "b": 0.6}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.2))
def test_holm_rejects_what_the_step_down_procedure_rejects(values, level):
    p_values = {str(number): value for number, value in enumerate(values)}
    rejected = set()
    for position, name in enumerate(sorted(p_values, key=p_values.get)):
        if p_values[name] * (len(values) - position) > level:
            break
        rejected.add(name)
    assert {name for name, value in holm(p_values).items() if value <= level} == rejected


def test_two_sided_p_counts_the_smaller_tail():
    assert two_sided_p(np.array([1.0] * 98 + [-1.0] * 2)) == pytest.approx(0.04)
    assert two_sided_p(np.array([-1.0] * 100)) == pytest.approx(0.01)
    assert two_sided_p(np.zeros(10)) == 1.0


def test_clustered_error_is_the_plain_one_where_every_template_has_a_sentence():
    values = np.random.default_rng(3).random(40)
    plain = np.std(values, ddof=1) / np.sqrt(40)
    assert clustered_standard_error(values, list(map(str, range(40)))) == pytest.approx(plain)
    # Copies of a sentence tell nothing new.
    assert clustered_standard_error(np.repeat(values, 5), np.repeat(np.arange(40), 5).astype(str).tolist()) == pytest.approx(plain)
    assert clustered_standard_error(values, ["one"] * 40) == 0.0
