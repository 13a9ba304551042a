"""Presets, studies and grids of runs, and where they are trained."""
