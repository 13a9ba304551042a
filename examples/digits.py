"""The library in one page: a model, a learner, a training loop and a judged order, on scikit-learn's digits.

Run: python examples/digits.py            (about a minute on two cores)
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import reorder

# B images, N patches


def split(seed: int) -> tuple[torch.Tensor, ...]:
    """Images (B, 1, 8, 8) and labels (B,) to train and to test on."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] / 8 - 1
    labels = torch.from_numpy(digits.target)
    shuffled = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    test, train = shuffled[:360], shuffled[360:]
    return images[train], labels[train], images[test], labels[test]


def main(steps: int, seed: int) -> float:
    torch.manual_seed(seed)
    train_images, train_labels, test_images, test_labels = split(seed)
    model = reorder.create_model(
        "transformer_xl", "mini", image_size=8, patch_size=2, channels=1, classes=10, segment=4, memory=4
    )
    learner = reorder.OrderLearner(model.grid, total_steps=steps, seed=seed)
    groups = [{"params": model.parameters()}, {"params": learner.parameters(), "lr": learner.learning_rate}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    for step in range(steps):
        batch = torch.randint(len(train_images), (64,))
        order = learner.sample(step)  # order[slot] = patch: what to read this batch in
        losses = F.cross_entropy(model(train_images[batch], order), train_labels[batch], reduction="none")
        loss = losses.mean() + learner.loss(losses)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        correct = model(test_images, learner.order()).argmax(1) == test_labels
    top1, error = correct.float().mean().item(), reorder.bootstrap_sem(correct)
    print(f"top-1 {top1:.1%} ± {error:.1%} on {len(correct)} images, read in {learner.order().tolist()}")
    return top1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.seed)
