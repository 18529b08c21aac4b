"""Training: objectives, schedule, the DeepSpeed engine, checkpoints that are complete or invisible, the loop."""
