"""A model of one's own, here a GRU, learns the order in which it reads its patches.

Positions belong to patches, so they are added first; reading in the order is the one line that is new.

Run: python examples/own_loop.py          (about half a minute on two cores)
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import reorder

# B images, N = 16 patches of 2x2 pixels, D width


class PatchReader(nn.Module):
    """Patches (B, N, 4) read one after the other, in an order (N,), to logits (B, 10)."""

    def __init__(self, patches: int = 16, width: int = 48):
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.positions = nn.Parameter(0.1 * torch.randn(patches, width))
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, patches: Tensor, order: Tensor) -> Tensor:
        tokens = self.embed(patches) + self.positions  # (B, N, D), row by row
        tokens = reorder.read(tokens, order)  # the one line that is new
        outputs, _ = self.recurrent(tokens)
        return self.head(outputs[:, -1])


def digits() -> tuple[Tensor, Tensor]:
    """Patches (B, 16, 4) and labels (B,)."""
    images = torch.from_numpy(load_digits().images).float() / 8 - 1
    patches = images.view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4)
    return patches, torch.from_numpy(load_digits().target)


def main(steps: int, seed: int) -> float:
    torch.manual_seed(seed)
    patches, labels = digits()
    test, train = torch.randperm(len(labels)).split([360, len(labels) - 360])
    model = PatchReader()
    learner = reorder.OrderLearner(grid=(4, 4), total_steps=steps, seed=seed)
    groups = [{"params": model.parameters()}, {"params": learner.parameters(), "lr": learner.learning_rate}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3)
    for step in range(steps):
        batch = train[torch.randint(len(train), (64,))]
        losses = F.cross_entropy(model(patches[batch], learner.sample(step)), labels[batch], reduction="none")
        loss = losses.mean() + learner.loss(losses)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        top1 = (model(patches[test], learner.order()).argmax(1) == labels[test]).float().mean().item()
    print(f"top-1 {top1:.1%} on {len(test)} images, read in {learner.order().tolist()}")
    return top1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.seed)
