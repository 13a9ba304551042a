"""Datasets by name, and the seeded loader that turns them into batches."""

from reorder.data.datasets import DATASETS, Dataset, Split, load_dataset
from reorder.data.loader import Loader

__all__ = ["DATASETS", "Dataset", "Loader", "Split", "load_dataset"]
