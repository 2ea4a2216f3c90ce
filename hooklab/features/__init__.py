"""Layer outputs as features: of one batch, or of a data set and stored in files."""
