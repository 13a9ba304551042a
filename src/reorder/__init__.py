"""Learn the order in which long-sequence vision models read an image's patches."""

from importlib.metadata import version

from reorder.classifier import Classifier, create_model
from reorder.evaluate import bootstrap_sem
from reorder.learner import OrderLearner
from reorder.policy import PlackettLuce
from reorder.scans import SCANS, scan

__version__ = version("reorder")
__all__ = ["SCANS", "Classifier", "OrderLearner", "PlackettLuce", "bootstrap_sem", "create_model", "scan"]
