"""Ratios, shares and worst cases from records whose answers are known."""

import pytest
from training import figures
from training.cases import Case
from training.turns import Comparison, Record


def comparison(kind="monolingual", our_seconds=(2.0, 1.0), peer_seconds=(8.0, 6.0), beyond=(100, 700), width=256):
    case = Case(width, 6, 4, kind, "fp32", rows=8, rounds=2)

    def record(seconds, beyond_bytes):
        return Record(
            seconds=list(seconds),
            cpu_seconds=[2 * each for each in seconds],
            losses=[5.0, 4.0],
            tokens=[1000, 1200],
            flops=[1e9, 1e9],
            needed_flops=[0.9e9, 0.9e9],
            beyond_bytes=[beyond_bytes // 2, beyond_bytes],
            peak_bytes=[beyond_bytes // 100 * figures.GIB, figures.GIB // 2],
        )

    return Comparison(case, {"ours": record(our_seconds, beyond[0]), "peer": record(peer_seconds, beyond[1])}, {"square": 4e9, "qkv": 2e9})


def test_a_case():
    found = figures.case_figures(comparison())
    assert found["tokens_per_second"]["ours"] == {"fastest": 1200.0, "median": 850.0, "a_processor_second": 600.0}
    assert found["ratio"] == found["ratio_in_processor_time"] == pytest.approx(1200 / 200)
    assert found["ratio_of_medians"] == pytest.approx(850 / 162.5)
    assert found["memory_ratio"] == 7.0
    assert found["gemm_share"] == pytest.approx({"common_count": 0.25, "needed": 0.225})
    assert found["largest_loss_difference"] == 0.0


def test_what_is_printed_of_a_case():
    measured = comparison()
    measured.sides["peer"].losses = [5.0, 4.5]
    said = figures.line(measured, figures.case_figures(measured))
    assert "tokens/s ours   1,200 peer    200 ratio  6.00" in said
    assert "peak memory, GiB 1.00 and 7.00" in said
    assert "loss of the last step 4.0000 and 4.5000, at most 5.0e-01 apart" in said


def test_keys_name_the_worst_case():
    cases = [
        comparison(),
        comparison(our_seconds=(2.0, 2.0), beyond=(100, 900), width=768),
        comparison("pairs", peer_seconds=(24.0, 24.0), beyond=(100, 200)),
    ]
    found = figures.worst(figures.keys([figures.case_figures(each) for each in cases]))
    wide = "monolingual_768x6_fp32"
    assert found == {
        "monolingual": (wide, pytest.approx(3.0)),
        "pairs": ("pairs_256x6_fp32", pytest.approx(24.0)),
        "memory": ("monolingual_256x6_fp32", pytest.approx(7.0)),
        "gemm_share": (wide, pytest.approx(0.125)),
    }


def test_losses_that_disagree_are_told():
    case = figures.case_figures(comparison())
    close = {"largest_difference": 0.01, "spread_of_seeds": 0.3}
    assert figures.disagreement([case], close) is None
    assert "monolingual_256x6_fp32" in figures.disagreement([{**case, "largest_loss_difference": 2e-4}], close)
    assert "held-out" in figures.disagreement([case], {"largest_difference": 0.4, "spread_of_seeds": 0.3})


def test_the_spread_of_seeds():
    found = []
    for seed, (own, theirs) in enumerate([(3.0, 3.01), (3.2, 3.18), (2.9, 2.9)]):
        each = comparison()
        each.sides["ours"].held_out_loss, each.sides["peer"].held_out_loss = own, theirs
        found.append(Comparison(Case(**{**each.case.__dict__, "seed": seed}), each.sides, {}))
    spread = figures.spread_figures(found)
    assert spread["seeds"] == [0, 1, 2]
    assert spread["largest_difference"] == pytest.approx(0.02)
    assert spread["spread_of_seeds"] == pytest.approx(0.28)
