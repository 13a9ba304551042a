"""Datasets by name, transforms, and seeded loaders."""
