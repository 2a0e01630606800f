"""The study's runs: what is stored can be had again, and the tables are made of it."""

import math
from dataclasses import asdict
from pathlib import Path

import pytest
from benchmarks.study import train
from benchmarks.study.__main__ import key, load
from benchmarks.study.data import features_and_labels
from benchmarks.study.plans import PLANS
from benchmarks.study.tables import TABLES
from benchmarks.study.train import Run, execute
from threadpoolctl import threadpool_limits
from torch.nn.functional import cross_entropy

from metacal.files import read_json

STUDY = Path(__file__).parent.parent / "results" / "study"
CE = Run("digits", "ce", 200)
# Both outer steps, and both ways that a hyper-parameter enters the loss: soft labels and an L2 term.
RUNS = [
    CE,
    Run("digits-short", "mc", 200, outer="published"),
    Run("digits-short", "mc", 200),
    Run("digits", "mc-l2", 200),
]
OF_OTHER_COMMANDS = {"gradient_noise", "term_weights"}
FIGURES = ("test_error", "test_ece", "test_nll")


@pytest.fixture(scope="module")
def stored():
    return load(STUDY / "runs.jsonl")


def agree(run, row):
    """Whether a run gives the stored figures.

    Training is chaotic: rounding that differs in one place shows in the third digit of the figures at the end of these
    runs. What stays below 1e-6 is the rounding of the figures' own sums, which may change.
    """
    found = execute(run)
    return all(math.isclose(found[name], row[name], rel_tol=1e-6) for name in FIGURES)


@pytest.fixture(scope="module")
def same_arithmetic(stored):
    """Skips where torch itself rounds otherwise (another processor or release): there no stored run can be had again.

    Plain cross-entropy, with torch's loss and nothing of ours in training, says so.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(train.BASELINES, "ce", cross_entropy)
        if not agree(CE, stored[key(asdict(CE))]):
            pytest.skip("torch rounds differently here than where the study was run")


@pytest.mark.usefixtures("same_arithmetic")
@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.regime}-{run.method}-{run.outer}")
def test_stored_runs_can_be_had_again(run, stored):
    assert agree(run, stored[key(asdict(run))])


@pytest.mark.slow
@pytest.mark.usefixtures("same_arithmetic", "data_folder")
def test_stored_runs_on_texts_can_be_had_again_whatever_number_of_threads_prepares_them(stored):
    run = Run("newsgroups", "ce", 200)
    with threadpool_limits(2):
        features_and_labels("newsgroups")
    assert agree(run, stored[key(asdict(run))])


def test_every_table_has_a_plan():
    assert {path.stem for path in STUDY.glob("*.md")} - OF_OTHER_COMMANDS == PLANS.keys()


@pytest.mark.parametrize("plan", sorted(PLANS))
def test_tables_are_made_of_the_stored_runs(plan, stored):
    heading, _, table = (STUDY / f"{plan}.md").read_text(encoding="utf-8").partition("\n\n")
    assert heading.startswith(f"Made by `python -m benchmarks.study {plan}` with torch ")
    assert table == TABLES[plan]([stored[key(asdict(run))] for run in PLANS[plan]()]).strip() + "\n"


def test_it_is_kept_what_tables_were_made_of_and_where(stored):
    about = read_json(STUDY / "about.json")
    for plan, make in PLANS.items():
        runs, found = make(), about[plan]
        assert found["runs"] == len(runs) and found["seeds"] == sorted({run.seed for run in runs})
        seconds = sum(stored[key(asdict(run))]["seconds"] for run in runs)
        assert found["train_seconds"] == pytest.approx(seconds, abs=0.1)
