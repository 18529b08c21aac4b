"""The evaluation tasks: intents from sentence templates, retrieval of translations, and their metrics. No torch here."""
