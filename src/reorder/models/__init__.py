"""Models that read tokens: patches, backbones and their kernels, the classifier around them."""
