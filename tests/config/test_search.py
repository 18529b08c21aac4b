from pathlib import Path

import pytest

from xlm.config.search import load_search
from xlm.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
SEARCH = f"""recipe: {ROOT / "pipelines" / "recipes" / "quickstart.yaml"}
candidates:
  - {{name: one, title: One}}
  - {{name: two, title: Two, set: [model.layers=2]}}
"""


def load(tmp_path, text):
    path = tmp_path / "search.yaml"
    path.write_text(text, encoding="utf-8")
    return load_search(path)


@pytest.mark.parametrize("path", sorted((ROOT / "pipelines" / "searches").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_searches_of_this_project_hold(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    search, recipes = load_search(path)
    assert len(search.candidates) == len(recipes) > 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("name: two", "name: one"), "two candidates are named 'one'"),
        (("model.layers=2", "model.layers=two"), "model.layers"),
        (("[model.layers=2]", '["evaluation.dev_languages=[es]"]'), "'two' has another evaluation section than 'one'"),
        (("[model.layers=2]", '["evaluation.dev_languages=[]"]'), "candidate 'two' has no evaluation.dev_languages"),
    ],
)
def test_what_cannot_be_chosen_among_is_one_sentence(tmp_path, change, sentence):
    assert [one.name for one in load(tmp_path, SEARCH)[0].candidates] == ["one", "two"]
    with pytest.raises(UserError, match=sentence):
        load(tmp_path, SEARCH.replace(*change))
