"""Layer outputs as features: of one batch, or of a dataset and stored in files."""
