"""A GRU reads images patch by patch, trained by Lightning, and a callback learns the order.

Run: pip install 'reorder[lightning]' && python examples/lightning_loop.py    (about a minute on two cores)
"""

import argparse

import lightning
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import reorder
from reorder.integrations.lightning import OrderCallback

# B images, N = 16 patches of 2x2 pixels, D width


class Reader(nn.Module):
    """Images (B, 1, 8, 8) to logits (B, 10)."""

    def __init__(self, width: int = 48):
        super().__init__()
        self.embed = nn.Conv2d(1, width, kernel_size=2, stride=2)
        self.positions = nn.Parameter(0.1 * torch.randn(16, width))
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(images).flatten(2).transpose(1, 2) + self.positions  # (B, N, D)
        return self.head(self.recurrent(tokens)[0][:, -1])


class Classification(lightning.LightningModule):
    """Trains a model that an order learner is attached to."""

    def __init__(self, steps: int, seed: int):
        super().__init__()
        self.model = Reader()
        learner = reorder.OrderLearner(grid=(4, 4), total_steps=steps, seed=seed)
        self.handle = reorder.attach(self.model, learner, at="recurrent")

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        losses = F.cross_entropy(self.model(images), labels, reduction="none")
        return losses.mean() + self.handle.loss(losses)  # zero, but for learners by reward

    def test_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        images, labels = batch
        self.log("top1", (self.model(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=3e-3)  # the callback has the learner's


def main(steps: int, seed: int) -> float:
    lightning.seed_everything(seed, verbose=False)
    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] / 8 - 1
    data = TensorDataset(images, torch.from_numpy(digits.target))
    test, train = random_split(data, [360, len(data) - 360])
    module = Classification(steps, seed)
    trainer = lightning.Trainer(
        max_steps=steps,
        callbacks=[OrderCallback(module.handle)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(train, batch_size=64, shuffle=True))
    top1 = trainer.test(module, DataLoader(test, batch_size=360), verbose=False)[0]["top1"]
    print(f"top-1 {top1:.1%} on {len(test)} images, read in {module.handle.order().tolist()}")
    return top1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.seed)
