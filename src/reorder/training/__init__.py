"""Training a model next to the order it reads in."""
