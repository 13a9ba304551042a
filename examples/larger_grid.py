"""An order found on 12x12 patches is used on 24x24: learned where it is cheap, read where it is not.

The scene is the same, a digit among pieces of others, drawn twice as large: four times the patches, of which
a model remembers as many times more. Nothing is learned about the order of the large grid.

Run: python examples/larger_grid.py          (about three minutes on two cores)
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor

import reorder
from reorder.config import Data
from reorder.data.datasets import Dataset, load_dataset
from reorder.orders.fixed import FixedOrder

SMALL, LARGE, PATCH = 12, 24, 4  # patches of a side, pixels of a patch's side


def clutter(side: int) -> Dataset:
    """Images of side x side patches, on which the digit covers the same part whatever the side."""
    return load_dataset(Data(name="clutter", cell=PATCH * side // SMALL), (PATCH * side, PATCH * side))


def reader(side: int) -> reorder.Classifier:
    """A model that remembers a ninth of the patches: 16 of 144, or 64 of 576."""
    options = {"segment": 1, "memory": side * side // 36, "memory_gradient": True, "dropout": 0.0}
    return reorder.create_model(
        "transformer_xl", "mini", PATCH * side, PATCH, channels=1, classes=10, readout="last", **options
    )


def train(data: Dataset, side: int, learner: reorder.OrderLearner | FixedOrder, steps: int) -> float:
    """The accuracy, in the learner's order, of a model trained with it for so many steps."""

    def pixels(images: Tensor) -> Tensor:
        return images.float() / 127.5 - 1

    model = reader(side)
    groups = [{"params": model.parameters()}]
    if isinstance(learner, reorder.OrderLearner):
        groups.append({"params": learner.parameters(), "lr": learner.learning_rate})
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    for step in range(steps):
        batch = torch.randint(len(data.train), (32,))
        logits = model(pixels(data.train.batch(batch)), learner.sample(step))
        losses = F.cross_entropy(logits, data.train.labels[batch], reduction="none")
        loss = losses.mean() + learner.loss(losses)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = 0
    with torch.no_grad():
        for batch in torch.arange(1000).split(100):
            logits = model(pixels(data.validation.batch(batch)), learner.order())
            right += int((logits.argmax(1) == data.validation.labels[batch]).sum())
    return right / 1000


def main(steps: int, seed: int) -> float:
    torch.manual_seed(seed)
    small, large = clutter(SMALL), clutter(LARGE)
    learner = reorder.OrderLearner((SMALL, SMALL), total_steps=steps, seed=seed)
    print(f"learned on {SMALL}x{SMALL}: top-1 {train(small, SMALL, learner, steps):.1%}")
    order = reorder.resample(learner.order(), (SMALL, SMALL), (LARGE, LARGE))
    grid = (LARGE, LARGE)
    print(f"row-major on {LARGE}x{LARGE}: top-1 {train(large, LARGE, FixedOrder(grid, 'row'), steps):.1%}")
    top1 = train(large, LARGE, FixedOrder(grid, order), steps)
    print(
        f"the learned order on {LARGE}x{LARGE}: top-1 {top1:.1%}; its end is read in {order[-64:].tolist()}"
    )
    return top1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1250)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.seed)
