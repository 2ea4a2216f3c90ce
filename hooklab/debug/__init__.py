"""Follows a run call by call: the order of the layers, and where a NaN comes from."""
