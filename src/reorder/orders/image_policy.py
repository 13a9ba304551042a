"""One order per image: the logits of all images, plus what a light network makes of an image's own patches.

An image's order is known only once its tokens are. So a learner gives `OwnOrders` instead of an order, which
`reorder.read` asks for the orders of the tokens that it reads.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._compile import _disable_dynamo  # as torch.compiler.disable, which is slow to import
from torch.func import functional_call

from reorder.orders.policy import PlackettLuce
from reorder.orders.scans import check_grid
from reorder.orders.straight_through import Sampled

# B images, N = rows * columns patches, D width

REACH = 5.0  # temperatures that a logit may move by
HIDDEN = 32  # channels of the network, whatever the width of the model
Noise = Tensor | Callable[[int], Tensor]  # (B, N), or a function of B


class Learning(NamedTuple):
    """How a policy learns from the orders it gives."""

    shared: Callable[[Tensor], Tensor]  # put on all parameters in one piece: shares their gradient
    kept: float  # of the network's gradient
    width: float | None  # of straight-through reading, if it is that
    seen: list[tuple[Tensor, Tensor]]  # orders and logits, both (B, N), of every part of a batch


def reach_of(temperature: float) -> float:
    """How far a network may move a logit, if its policy explores with a temperature."""
    return max(REACH * temperature, 1e-3)


class PatchNetwork(nn.Module):
    """Patch embeddings (B, N, D) to a logit for each patch (B, N), which sees the 5 x 5 patches around it.

    It starts at zero for every image, and stays within `reach` of it: beyond, the noise would move no patch
    any more, and the network could not learn from its mistakes.
    """

    def __init__(self, grid: tuple[int, int], width: int, reach: float):
        super().__init__()
        self.grid, self.reach = check_grid(grid), reach
        self.norm = nn.LayerNorm(width)
        self.proj = nn.Linear(width, HIDDEN)
        self.near = nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1)
        self.further = nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1)
        self.head = nn.Conv2d(HIDDEN, 1, 1)
        nn.init.zeros_(self.head.weight)
        assert self.head.bias is not None
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = F.gelu(self.proj(self.norm(tokens))).transpose(1, 2).unflatten(2, self.grid)
        hidden = F.gelu(self.further(F.gelu(self.near(hidden))))
        return self.reach * (self.head(hidden).flatten(1) / self.reach).tanh()


class ImagePolicy(PlackettLuce):
    """A Plackett-Luce policy whose logits are those of all images plus a network's for the image.

    >>> policy = ImagePolicy(torch.linspace(0, -1, 16), grid=(4, 4), width=8, reach=1.0)
    >>> policy.image_logits(torch.randn(5, 16, 8)).shape
    torch.Size([5, 16])
    """

    def __init__(self, logits: Tensor, grid: tuple[int, int], width: int, reach: float):
        super().__init__(logits)
        if width < 1:
            raise ValueError(f"the width of the patch embeddings must be at least 1, got {width}")
        self.network = PatchNetwork(grid, width, reach)

    def image_logits(self, tokens: Tensor, learning: Learning | None = None) -> Tensor:
        """The logits (B, N) for images with patch embeddings (B, N, D), which get no gradient."""
        with torch.autocast(tokens.device.type, enabled=False):
            tokens = tokens.detach().to(self.logits)
            if learning is None:
                return self.logits + self.network(tokens)
            parameters = dict(self.named_parameters())
            flat = learning.shared(torch.cat([parameter.flatten() for parameter in parameters.values()]))
            pieces = flat.split([parameter.numel() for parameter in parameters.values()])
            views = {
                name: piece.view_as(parameters[name]) for name, piece in zip(parameters, pieces, strict=True)
            }
            logits = views.pop("logits")
            network = {name.removeprefix("network."): view for name, view in views.items()}
            own = functional_call(self.network, network, (tokens,))
            own.register_hook(lambda gradient: learning.kept * gradient)
            return logits + own


class OwnOrders:
    """An order for each image, by a policy that looks at its patches: what `reorder.read` reads it in.

    Noise makes them samples of the policy at a temperature; without it they are its most likely ones.
    """

    def __init__(self, policy: ImagePolicy, noise: Noise | None = None, temperature: float = 0.0):
        self.policy, self.noise, self.temperature = policy, noise, temperature
        self.learning: Learning | None = None

    @_disable_dynamo  # a compiled model breaks off here: what is sampled is no part of its graph
    def of(self, tokens: Tensor) -> Tensor | Sampled:
        """The orders (B, N) of images with patch embeddings (B, N, D)."""
        learning = self.learning
        with torch.set_grad_enabled(learning is not None):
            logits = scores = self.policy.image_logits(tokens, learning)
            if self.noise is not None:
                noise = self.noise if isinstance(self.noise, Tensor) else self.noise(len(tokens))
                scores = logits + self.temperature * noise.to(logits)
        if torch.compiler.is_exporting():
            return scores.topk(scores.shape[-1]).indices  # ONNX has no stable sort
        orders = scores.detach().sort(dim=-1, descending=True, stable=True).indices
        if learning is None:
            return orders
        learning.seen.append((orders, logits))
        return orders if learning.width is None else Sampled(orders, scores, learning.width)

    def chunk(self, parts: int) -> "list[OwnOrders]":
        """The orders of so many parts of a batch."""
        if not isinstance(self.noise, Tensor):
            return [self] * parts
        found = [OwnOrders(self.policy, noise, self.temperature) for noise in self.noise.chunk(parts)]
        for part in found:
            part.learning = self.learning
        return found
