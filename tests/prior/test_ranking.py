"""From measurements to a choice: rankings, ties, agreement, and what is written."""

import json

import numpy as np
import pytest

from reorder.data.progress import Display
from reorder.orders.files import save_order
from reorder.orders.scans import SCANS
from reorder.prior.codes import Codes
from reorder.prior.compressibility import Estimates
from reorder.prior.ranking import (
    agreement,
    choose,
    describe_choice,
    measure,
    named_orders,
    notes,
)
from reorder.report.prior_figures import prior_figure
from reorder.report.prior_tables import prior_tables
from reorder.report.tables import to_markdown

GRID = (6, 8)
QUIET = Display(quiet=True)
NAMES = [*SCANS, "random"]


def texts_along_rows(images=60):
    """Rows of one of two texts from some place on: the row scan is the most compressible by any measure."""
    rng, (r, c) = np.random.default_rng(0), np.divmod(np.arange(48), 8)
    texts = rng.integers(0, 16, (2, 8))
    choice, start = rng.integers(0, 8, (2, images, 6))
    return texts[choice[:, r] % 2, (c + start[:, r]) % 8].astype(np.uint8)


@pytest.fixture(scope="module", params=["image", "corpus"])
def prior(request):
    facts = {"tokenizer": "made up", "codebook_size": 16, "codes_used": 12, "perplexity": 8.4}
    codes = Codes(texts_along_rows(), 16, GRID, facts | {"mse_of_variance": 0.123})
    return measure(codes, named_orders(GRID, []), request.param, QUIET)


def test_the_ranking_is_known(prior):
    for measured in prior["rankings"].values():
        assert measured[-1] == "row"
        assert set(measured) == set(SCANS)
    assert prior["agreement"]["unigram"]["unigram"] == pytest.approx(1)
    assert prior["chosen"]["scan"] == prior["rankings"]["unigram"][0] != "row"
    assert (
        prior["orders"]["row"]["unigram"]["reduction"]
        > prior["orders"]["random"]["unigram"]["reduction"] + 10
    )


def test_numbers_of_an_order_agree_with_each_other(prior):
    for encoding, symbols, width in (("unigram", 48, 1), ("bigram", 47, 1)):
        found = prior["orders"]["spiral"][encoding]
        assert found["ratio"] == pytest.approx(1 / (1 - found["reduction"] / 100))
        assert found["bits_per_code"] == pytest.approx(8 * symbols * width / found["ratio"] / 48)
    assert ("one_stream" in prior["orders"]["row"]["unigram"]) == (prior["scope"] == "corpus")


def test_the_prior_is_json_and_is_shown(prior):
    assert json.loads(json.dumps(prior, allow_nan=False)) == prior
    tables = prior_tables(prior)
    shown = "\n".join(map(to_markdown, tables))
    assert shown.count("\n| row | ") == (3 if prior["scope"] == "corpus" else 2)
    assert len(tables) == (5 if prior["scope"] == "corpus" else 4)
    assert f"| LZMA unigram | {', '.join(prior['rankings']['unigram'])} |" in shown
    assert "made up: 16 codes, 12 of them used, perplexity 8; rebuilt with an error of 12.3% of" in shown
    assert all(note in shown for note in prior["notes"])
    assert len(prior_figure(prior).axes) == 2


def test_order_files_are_measured_by_their_name(tmp_path):
    for name in ("mine", "row"):
        save_order(tmp_path / f"{name}.json", SCANS["column"](*GRID), GRID, {})
    named = named_orders(GRID, [tmp_path / "mine.json", tmp_path / "row.json"])
    assert [*named] == [*SCANS, "random", "mine", str(tmp_path / "row.json")]
    prior = measure(Codes(texts_along_rows(), 16, GRID, {}), named, "image", QUIET)
    assert prior["orders"]["mine"] == prior["orders"]["column"]
    assert "mine" in prior["rankings"]["bigram"]
    assert prior["chosen"]["scan"] in SCANS


def estimates(values, variance=0.04, shared=0.03):
    covariance = np.full((7, 7), shared) + np.eye(7) * (variance - shared)
    return Estimates(np.array(values, dtype=float), covariance)


def test_the_least_compressible_scan_leads_by_a_paired_error():
    found = choose(estimates([30, 20, 29, 21, 30, 30, 5]), NAMES)  # random, at 5, is no scan
    assert (found["scan"], found["next"], found["lead"]) == ("column", "spiral", 1)
    assert found["lead_sem"] == pytest.approx(np.sqrt(2 * 0.04 - 2 * 0.03))
    assert not found["tie"]


def test_a_small_lead_is_called_a_tie_and_equals_go_by_the_sequence_of_scans():
    small = choose(estimates([30, 20, 29, 20.2, 30, 30, 5]), NAMES)
    assert (small["scan"], small["tie"]) == ("column", True)
    equal = choose(estimates([30, 20, 29, 20, 30, 30, 5], 0, 0), NAMES)
    assert (equal["scan"], equal["next"], equal["lead"], equal["tie"]) == ("column", "spiral", 0, True)
    said = describe_choice({"chosen": small, "images": 70})
    assert (
        said
        == "least compressible: column, 0.20 ± 0.14 points below spiral: a tie, as far as 70 images can tell"
    )


def test_agreement_is_kendalls_tau():
    def order(unigram, bigram, one, two):
        return {
            "unigram": {"reduction": unigram},
            "bigram": {"reduction": bigram},
            "entropy1": {"corrected": one},
            "entropy2": {"corrected": two},
        }

    made = {"orders": {"a": order(1, 2, 9, 5), "b": order(2, 1, 8, 5), "c": order(3, 3, 7, 5)}}
    found = agreement(made, ["a", "b", "c"])
    assert found["unigram"]["bigram"] == pytest.approx(1 / 3)  # of three pairs two agree
    assert found["unigram"]["entropy1"] == pytest.approx(1)  # a high entropy is hard to compress
    assert found["unigram"]["entropy2"] is None


def test_an_entropy_of_too_few_codes_is_said_to_be_unsure():
    codes = np.random.default_rng(1).integers(0, 64, (30, 48)).astype(np.uint8)
    said = notes(measure(Codes(codes, 64, GRID, {}), named_orders(GRID, []), "image", QUIET))
    assert said[0].startswith("entropy given 1: 22 codes per context; the correction moves it by up to 0.")
    assert said[1] == "entropy given 2: 1.2 codes per context are too few to rank orders by"


@pytest.mark.parametrize(
    ("shape", "grid", "scope", "said"),
    [
        ((1, 48), GRID, "image", "needs at least 2 images for a standard error, got 1"),
        ((9, 2), (1, 2), "image", "a 1x2 grid has no order to speak of"),
        ((9, 48), GRID, "world", "unknown scope 'world'; choose from image, corpus"),
    ],
)
def test_what_cannot_be_measured_is_refused(shape, grid, scope, said):
    with pytest.raises(ValueError, match=said):
        measure(Codes(np.zeros(shape, np.uint8), 2, grid, {}), named_orders(grid, []), scope, QUIET)
