"""What the callbacks must do, written out: a model that stays as it is, and a learner with its own Adam."""

import torch
from external_models import CausalReader
from torch.nn.functional import cross_entropy

import reorder

# B = 8 images in a batch, N = 16 patches

STEPS, BATCH = 24, 8
IMAGES = torch.randn(BATCH, 3, 16, 16, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(BATCH) % 5


def made(estimator="straight-through"):
    """A model, its learner, and the handle that attaches one to the other; the same every time."""
    torch.manual_seed(0)
    model = CausalReader()
    learner = reorder.OrderLearner(
        (4, 4), "row", total_steps=STEPS, warmup_fraction=0.25, policy_fraction=0.5, estimator=estimator
    )
    return model, learner, reorder.attach(model, learner, at="recurrent", prefix=1)


def logits_by_hand(estimator="straight-through", parts=1):
    """The policy's logits (N,) after a run of a model that does not learn, its batches in so many parts."""
    model, learner, handle = made(estimator)
    optimizer = torch.optim.Adam(learner.parameters(), lr=learner.learning_rate)
    for step in range(STEPS):
        handle.step(step)
        for images, labels in zip(IMAGES.chunk(parts), LABELS.chunk(parts), strict=True):
            losses = cross_entropy(model(images), labels, reduction="none")
            ((losses.mean() + learner.loss(losses)) / parts).backward()
        optimizer.step()
        optimizer.zero_grad()
    return learner.policy.logits.detach()
