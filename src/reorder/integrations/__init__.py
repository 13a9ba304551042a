"""Other people's training loops: callbacks that bring along a learner attached to their model."""
