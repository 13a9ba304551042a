"""Datasets by name, and the seeded loader that turns them into batches."""

from reorder.data.datasets import DATASETS, Dataset, Split, load_dataset, load_unlabelled
from reorder.data.loader import Images, Loader

__all__ = ["DATASETS", "Dataset", "Images", "Loader", "Split", "load_dataset", "load_unlabelled"]
