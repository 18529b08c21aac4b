"""What a run leaves on disk: fingerprints, stages that are complete or invisible, progress. No torch here."""
