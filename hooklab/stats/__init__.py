"""Statistics of a training run: records them, draws them, keeps them in files and says what is wrong."""
