"""The prior: images as grids of discrete codes, and how compressible each scan of them is."""
