"""An existing model, whose code is not touched, learns the order in which it reads its patches.

Of timm's and Hugging Face's vision transformers `reorder.attach` knows where the tokens are; of this one it
is told the module that they enter, with their positions.

Run: python examples/attach.py            (about half a minute on two cores)
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import reorder

# B images, N = 16 patches of 2x2 pixels, D width


class Existing(nn.Module):
    """Images (B, 1, 8, 8) to logits (B, 10): a GRU that knows nothing of orders."""

    def __init__(self, width: int = 48):
        super().__init__()
        self.embed = nn.Conv2d(1, width, kernel_size=2, stride=2)
        self.positions = nn.Parameter(0.1 * torch.randn(16, width))
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(images).flatten(2).transpose(1, 2) + self.positions  # (B, N, D)
        return self.head(self.recurrent(tokens)[0][:, -1])


def main(steps: int, seed: int) -> float:
    torch.manual_seed(seed)
    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] / 8 - 1
    labels = torch.from_numpy(digits.target)
    test, train = torch.randperm(len(labels)).split([360, len(labels) - 360])
    model = Existing()
    learner = reorder.OrderLearner(grid=(4, 4), total_steps=steps, seed=seed)
    handle = reorder.attach(model, learner, at="recurrent")
    groups = [{"params": model.parameters()}, {"params": handle.parameters(), "lr": learner.learning_rate}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3)
    for _ in range(steps):
        batch = train[torch.randint(len(train), (64,))]
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        handle.step()  # the curriculum goes on
    model.eval()  # it reads in the order found
    with torch.no_grad():
        top1 = (model(images[test]).argmax(1) == labels[test]).float().mean().item()
    print(f"top-1 {top1:.1%} on {len(test)} images, read in {handle.order().tolist()}")
    return top1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.seed)
