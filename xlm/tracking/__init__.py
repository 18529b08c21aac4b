"""The one door to MLflow, and a JSON-lines twin that works when MLflow does not. No torch here."""
