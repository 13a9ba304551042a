"""Imported by the process that forks the decoding workers, and by nothing else."""

from reorder.data.loader import ignore_signals

ignore_signals()
