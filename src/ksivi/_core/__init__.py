"""Helpers for every package: argument checks, precision, files, compilation and devices."""
