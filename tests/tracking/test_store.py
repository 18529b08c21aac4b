import pytest

from xlm.tracking.store import artifacts_of, default_tracking_uri, ui_command, without_credentials


@pytest.fixture(autouse=True)
def _no_server(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_the_ui_command_names_the_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = default_tracking_uri(tmp_path / "runs" / "quickstart")
    assert ui_command(store).endswith("mlflow ui --backend-store-uri sqlite:///runs/mlflow.db")
    assert artifacts_of(store) == (tmp_path / "runs" / "mlartifacts").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert default_tracking_uri(tmp_path) == "http://127.0.0.1:5000"
    assert artifacts_of("http://127.0.0.1:5000") is None


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("https://someone:secret@mlflow.example/a", "https://mlflow.example/a"),
        ("http://[no address", "http://[no address"),
    ],
)
def test_a_server_is_shown_as_its_address(uri, shown):
    assert ui_command(uri) == shown
    assert without_credentials(f"request to {uri}/api failed at {uri}", uri) == f"request to {shown}/api failed at {shown}"
