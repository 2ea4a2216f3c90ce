"""Healthy programs in the ways of public training code, written after the first ones were looked at, by people who saw
no rule."""
