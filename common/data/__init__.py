"""Data: verified cache of the real sets, equal-size Dirichlet partition, splits and batches by position."""
