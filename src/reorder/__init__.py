"""Learn the order in which long-sequence vision models read an image's patches."""

from importlib.metadata import version

from reorder.models.classifier import Classifier, create_model
from reorder.orders.learner import OrderLearner
from reorder.orders.policy import PlackettLuce
from reorder.orders.scans import SCANS, scan
from reorder.runs.statistics import bootstrap_sem

__version__ = version("reorder")
__all__ = ["SCANS", "Classifier", "OrderLearner", "PlackettLuce", "bootstrap_sem", "create_model", "scan"]
