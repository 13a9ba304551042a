"""How well a model does: correctness of each image, top-1 and top-5, and their standard errors."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reorder.data.loader import Loader
from reorder.data.ranks import gather, on_any, union
from reorder.models.classifier import Classifier
from reorder.orders.image_policy import OwnOrders
from reorder.orders.read import Reading

# n images, B in a batch, C channels, H x W pixels, N patches


class Evaluation(NamedTuple):
    correct: Tensor  # (n,), bool: the most likely class is right
    correct5: Tensor  # (n,), bool: the right class is among the five most likely
    losses: Tensor  # (n,), cross-entropy in nats

    @property
    def loss(self) -> float:
        return self.losses.mean().item()

    @property
    def loss_sem(self) -> float:
        """The standard error of the mean loss, which the bootstrap of a mean tends to."""
        return self.losses.std(correction=0).item() / math.sqrt(len(self.losses))

    @property
    def top1(self) -> float:
        return self.correct.double().mean().item()

    @property
    def top5(self) -> float:
        return self.correct5.double().mean().item()


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor, Tensor]],
    order: Reading | None,
    device: torch.device | None = None,
) -> Evaluation:
    """Evaluate a classifier on batches of indices, images and labels, read in an order.

    Of several ranks each gives its share of the images; all get the whole, sorted by index.
    """
    was_training = model.training
    model.eval()
    found = []
    for index, images, labels in batches:
        labels = labels.to(device)
        logits = model(images.to(device), order).float()
        losses = F.cross_entropy(logits, labels, reduction="none").cpu()
        best = (logits.topk(min(5, logits.shape[1])).indices == labels[:, None]).cpu()
        columns = (index, best[:, 0], best.any(1), losses)
        found.append(torch.stack([column.double() for column in columns], dim=1))  # not every GPU has float64
    model.train(was_training)
    rows = gather(torch.cat(found) if found else torch.empty(0, 4, dtype=torch.double))
    _, correct, correct5, losses = rows[rows[:, 0].argsort()].T
    return Evaluation(correct.bool(), correct5.bool(), losses)


def evaluate_loader(
    model: nn.Module,
    loader: Loader,
    order: Reading | None,
    device: torch.device,
    parts: int = 1,
    before_batch: Callable[[], None] | None = None,
) -> Evaluation:
    """Evaluate on all validation images, each rank its share, every batch in so many parts to save memory.

    `before_batch` is called before every batch that all ranks have.
    """

    def batches() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        share = len(loader.dataset.validation) // loader.world_size
        together = share // (loader.batch_size // loader.world_size)  # batches that every rank has
        for number, batch in enumerate(loader.validate()):
            if before_batch is not None and number < together:
                before_batch()
            yield from zip(*(column.chunk(parts) for column in batch), strict=True)

    result = evaluate(model, batches(), order, device)
    if on_any([loader.has_news], device)[0]:
        loader.share(union(loader.broken))
    return result


class Seen(NamedTuple):
    """The first validation images of a process."""

    images: Tensor  # (k, C, H, W), as the model reads them: the first k of the n
    labels: Tensor  # (n,)
    orders: Tensor  # (n, N): in which each is read


@torch.no_grad()
def own_orders(
    model: Classifier, loader: Loader, own: OwnOrders, device: torch.device, most: int, kept: int = 0
) -> Seen:
    """The orders that a model reads its first validation images in, at most so many; some images are kept."""
    batches, count = [], 0
    for _, images, labels in loader.validate():
        order = model.tokens.in_order(images.to(device), own)[1]
        assert isinstance(order, Tensor)
        first = images[: max(0, kept - count)].clone()  # a view would hold the whole batch in memory
        batches.append((first, labels, order.cpu()))
        count += len(labels)
        if count >= most:
            break
    return Seen(*(torch.cat(columns)[:most] for columns in zip(*batches, strict=True)))
