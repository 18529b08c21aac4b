"""The optimizers of a recipe, each right where ranks hold pieces of parameters only."""
