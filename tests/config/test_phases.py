"""Phases: what moves, what must sum, and what belongs to which objective."""

import pytest
from pydantic import ValidationError

from xlm.config.phases import Phase, RateRamp, ShareRamp, value_at


def phase(**changed):
    return Phase.model_validate(
        {
            "name": "one",
            "steps": 11,
            "sequence_length": 64,
            "sampling": {"kind": "temperature", "alpha": 0.7},
            "objectives": {"mlm": {"share": 1}},
            **changed,
        }
    )


def test_a_ramp_goes_from_its_first_step_to_its_last():
    moving = phase(mask_rate={"start": 0.3, "end": 0.1})
    assert moving.mask_rate_at(0) == 0.3
    assert moving.mask_rate_at(5) == pytest.approx(0.2)
    assert moving.mask_rate_at(10) == pytest.approx(0.1)
    assert phase(steps=1, mask_rate={"start": 0.3, "end": 0.1}).mask_rate_at(0) == 0.3


@pytest.mark.parametrize("value", [0.4, ShareRamp(start=0.4, end=0.4), RateRamp(start=0.4, end=0.4)])
def test_a_plain_value_is_a_ramp_that_stands_still(value):
    assert value_at(value, 0.0) == value_at(value, 0.5) == value_at(value, 1.0) == 0.4


def test_only_moving_samplings_and_shares_make_plateaus():
    assert not phase().has_ramps
    assert not phase(mask_rate={"start": 0.3, "end": 0.1}).has_ramps  # a function of the step itself
    assert phase(sampling={"kind": "temperature", "alpha": {"start": 0.7, "end": 0.3}}).has_ramps
    shares = {"mlm": {"share": {"start": 1, "end": 0.5}}, "tlm": {"share": {"start": 0, "end": 0.5}}}
    moving = phase(objectives=shares)
    assert moving.has_ramps
    assert moving.objectives["tlm"].ever_drawn
    assert not phase(objectives={"mlm": {"share": 1}, "tlm": {"share": 0}}).objectives["tlm"].ever_drawn


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"objectives": {"mlm": {"share": {"start": 0.9, "end": 1}}}}, "sum to 0.9 at its first step"),
        ({"objectives": {"mlm": {"share": {"start": 1, "end": 0.9}}}}, "sum to 0.9 at its last step"),
        ({"objectives": {"tlm": {"share": 1, "rows": "full_sentences"}}}, "objectives.tlm.rows is a choice of mlm, clm, rtd only"),
        ({"objectives": {"mlm": {"share": 1, "form": "xlm"}}}, "objectives.mlm.form is a choice of tlm only"),
        ({"masking": {"masked_share": 0.95, "random_share": 0.1}}, "more than 1 together"),
        ({"mask_rate": {"start": 0, "end": 0.1}}, "greater than 0"),
        ({"sampling": {"kind": "unimax"}}, "max_epochs"),
        ({"sampling": {"kind": "proportional", "unit": "bytes"}}, "sentences"),
        ({"languages": []}, "at least 1 item"),
        ({"languages": ["en", "en"]}, "stands twice in the languages of phase 'one'"),
        ({"ramp_plateaus": 1}, "greater than or equal to 2"),
    ],
)
def test_what_does_not_fit_is_said(changed, words):
    with pytest.raises(ValidationError) as raised:
        phase(**changed)
    assert words in str(raised.value)
