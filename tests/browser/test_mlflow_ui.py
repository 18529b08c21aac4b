"""What a person sees: `mlflow ui` on a run's store, opened in Chromium. Screenshots stay in $XLM_SCREENSHOTS, where it is set."""

import json
import math
import os
import shutil
import time
from pathlib import Path

import pytest
from made_up_run import RECIPE, make_run
from mlflow_server import mlflow_server
from warm_scripts import WarmScript
from webdriver import browser

from xlm.tracking.run_card import RunCard
from xlm.tracking.tracker import Tracker

ROOT = Path(__file__).parents[2]
DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium")
pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not (DRIVER and CHROMIUM), reason="needs Debian's chromium and chromium-driver: no browser is installed"),
]
LINES = "document.querySelectorAll('.js-plotly-plot path.js-line')"
STEPS = range(10, 1001, 10)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The tracker of a run that has logged curves, and of a sweep's run above it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setattr("xlm.tracking.tracker.SYSTEM_INTERVAL_S", 0.2)
        root = tmp_path_factory.mktemp("runs") / "first"
        tracker = Tracker(
            root,
            key="key",
            name="first",
            parameters={"model": {"width": 384}, "seed": 3},
            parent="the-sweep",
            card=lambda: RunCard({"recipe.yaml": "name: first\n"}, {"git.dirty": "false"}),
            with_system_metrics=True,
        )
        tracker.start()
        tracker.flush(300)
        for step in STEPS:
            tracker.log(
                step, {"loss": 2 + 8 / math.sqrt(step), "loss/mlm": 3 + 8 / math.sqrt(step), "learning_rate": 1e-3 * (1 - step / 1000)}
            )
            tracker.flush() if step % 250 == 0 else None
        time.sleep(1)  # for more than one look at the machine: rates need two
        tracker.flush(300)
        tracker.close()
        yield tracker


@pytest.fixture(scope="module")
def trained(run):
    """The id of a run that `pretrain.py` has made, in the same store."""
    root = Path(run.uri.removeprefix("sqlite:///")).parent
    long = {**RECIPE, "phases": [{**RECIPE["phases"][0], "steps": 40}], "training": {**RECIPE["training"], "log_every_steps": 1}}
    recipe = make_run(root, long)
    command = [ROOT / "pipelines" / "pretrain.py", "--recipe", recipe, "--run-dir", root / "run", "--parent-run", "the-sweep"]
    command += ["--deepspeed_config", ROOT / "deepspeed_configs" / "zero1.json", "--set", "training.micro_batch_tokens=512"]
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"} | {"OMP_NUM_THREADS": "1"}
    script = WarmScript(command, env=environment, cwd=root, output=root / "printed")
    assert script.wait(600) == 0, (root / "printed").read_text()
    return json.loads((root / "run" / "train" / "run.json").read_text())["mlflow_run_id"]


@pytest.fixture(scope="module")
def page(run, trained, tmp_path_factory):
    with (
        mlflow_server(tmp_path_factory.mktemp("ui"), store=run.uri, command="ui") as port,
        browser(DRIVER, CHROMIUM, tmp_path_factory.mktemp("profile")) as opened,
    ):
        opened.at = f"http://127.0.0.1:{port}/#/experiments/1"
        yield opened


def look(page, name):
    if "XLM_SCREENSHOTS" in os.environ:
        page.screenshot(Path(os.environ["XLM_SCREENSHOTS"]) / f"{name}.png")


def test_the_list_shows_runs_below_the_sweeps(page):
    page.open(page.at + "/runs?searchFilter=&orderByKey=attributes.start_time&orderByAsc=false")
    page.wait_until("return document.body.innerText.includes('the-sweep')")
    look(page, "runs")


def test_a_runs_page_shows_its_parameters_and_state(page, run):
    page.open(f"{page.at}/runs/{run.run_id}")
    for text in ("Finished", "model.width", "384", "loss/mlm"):
        page.wait_until(f"return document.body.innerText.includes('{text}')")
    look(page, "overview")


def test_its_curves_are_drawn(page, run):
    page.open(f"{page.at}/runs/{run.run_id}/model-metrics")
    page.wait_until(f"return {LINES}.length >= 1")
    # A curve of a hundred points, that falls: on the screen y grows downwards.
    path = page.wait_until(
        f"const long = [...{LINES}].map(line => line.getAttribute('d')).filter(d => d.split(/[LHV]/).length > 20); return long[0]"
    )
    numbers = [float(part) for part in path.replace("M", " ").replace("L", " ").replace(",", " ").split() if part[0] not in "HV"]
    assert numbers[1] < numbers[-1]
    look(page, "curves")


def test_a_trainings_page_has_its_recipe_its_curves_and_its_files(page, trained):
    page.open(f"{page.at}/runs/{trained}")
    for text in ("Finished", "model.width", "loss/contrastive"):
        page.wait_until(f"return document.body.innerText.includes('{text}')")
    look(page, "training")
    page.open(f"{page.at}/runs/{trained}/model-metrics")
    page.wait_until(f"return [...{LINES}].filter(line => line.getAttribute('d').split(/[LHV]/).length > 20).length >= 1")
    look(page, "training-curves")
    page.open(f"{page.at}/runs/{trained}/artifacts/recipe.yaml")
    page.wait_until("return document.body.innerText.includes('name: made-up')")


def test_the_machine_has_a_page_of_its_own(page, run):
    page.open(f"{page.at}/runs/{run.run_id}/system-metrics")
    # Further down the page charts are drawn when they come into sight.
    for text in ("cpu_utilization_percentage", "disk_available_megabytes"):
        page.wait_until(f"return document.body.innerText.includes('{text}')")
    page.wait_until(f"return {LINES}.length >= 1")
    look(page, "system")


def test_the_recipe_is_among_the_artifacts(page, run):
    page.open(f"{page.at}/runs/{run.run_id}/artifacts/recipe.yaml")
    page.wait_until("return document.body.innerText.includes('name: first')")
    look(page, "artifacts")
