"""Attaching an order, or what learns one, to an existing model, which then reads its patch tokens in it."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo  # as torch.compiler.disable, which is slow to import
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from reorder.models.indifference import is_indifferent
from reorder.models.places import HOW, Place, find_place, named_place
from reorder.models.positions import follow, position_modules
from reorder.orders.fixed import FixedOrder
from reorder.orders.image_policy import OwnOrders
from reorder.orders.learner import OrderLearner
from reorder.orders.mistakes import REPEATS
from reorder.orders.named import named_order
from reorder.orders.order import invert, validate
from reorder.orders.read import Reading, known, plain, read
from reorder.orders.scans import check_grid

# B images, N patches, L = prefix + N tokens, D width

Learner = OrderLearner | FixedOrder


def attach(
    model: nn.Module,
    order: "str | Path | Tensor | Learner",
    at: str | None = None,
    grid: tuple[int, int] | None = None,
    prefix: int | None = None,
    restore: bool = False,
) -> "Handle":
    """Have a model read its patch tokens in an order, or in those of a learner.

    The order is one of the six scans, an order file, a tensor (N,), or an `OrderLearner`: in training the
    model reads what that samples, in evaluation the order found so far; call `handle.step()` after every
    step of the optimizer. timm's vision transformers (ViT, DeiT, EVA) and Hugging Face's (ViT, DINOv2, BEiT
    and their like) are known; of another model name the module that the tokens (B, prefix + N, D) enter,
    with their positions. `restore` puts the tokens back where they were after that module, or, of models
    that are known, after the last norm, for outputs that are maps.

        >>> blocks = torch.nn.Sequential(torch.nn.Identity())
        >>> handle = reorder.attach(blocks, "column", at="0", grid=(2, 2))
        >>> blocks(torch.arange(4.0).reshape(1, 4, 1)).flatten()
        tensor([0., 2., 1., 3.])
        >>> handle.remove()
        >>> blocks(torch.arange(4.0).reshape(1, 4, 1)).flatten()
        tensor([0., 1., 2., 3.])
    """
    model = _unwrapped(model)
    place = find_place(model) if at is None else named_place(model, at)
    if grid is not None:
        grid = check_grid(grid)
    if prefix is None:
        prefix = place.prefix or 0
    if isinstance(order, str | Path) and grid is None and place.grid is None:
        raise ValueError(f"the order {str(order)!r} needs a grid: attach(..., grid=(rows, columns))")
    if not isinstance(order, OrderLearner | FixedOrder):
        order = _checked(order, grid or place.grid)
    elif isinstance(order, OrderLearner) and order.grid != (grid or place.grid or order.grid):
        rows, columns = grid or place.grid or order.grid
        own = f"{order.grid[0]}x{order.grid[1]}"
        raise ValueError(f"the learner is for a {own} grid, but a {rows}x{columns} grid is read")
    if restore and place.restore is None:
        raise ValueError(
            f"cannot tell after which module of {type(place.owner).__name__} to restore: give at="
        )
    return Handle(model, order, place, prefix, restore)


class Handle:
    """What `attach` gives: asks for the order that is read, advances its learner, takes all back."""

    def __init__(self, model: nn.Module, order: Tensor | Learner, place: Place, prefix: int, restore: bool):
        self.learner = None if isinstance(order, Tensor) else order
        self.prefix = prefix
        # What is read, whatever the learner says
        self._fixed: Tensor | OwnOrders | None = order if isinstance(order, Tensor) else None
        self._model, self._place = model, place
        self._step = 0
        self._reads = 0  # in training, in this step
        self._sampled: Reading | None = None  # for this step: read by every forward pass in it
        self._now: Tensor | None = None  # the order last read in
        self._forced: Tensor | None = None  # to try a model in an order
        self._tried = False
        self._hooks = self._put_hooks(restore)
        _trace_anew()

    def step(self, step: int | None = None) -> None:
        """Go on to the next step of training, or to the one given, as after a restart."""
        if step != self._step:
            self._step = self._step + 1 if step is None else step
            self._reads, self._sampled = 0, None

    def order(self) -> Tensor:
        """The order (N,) that is read in evaluation, but where images have their own."""
        if isinstance(self._fixed, Tensor):
            return self._fixed
        assert self.learner is not None
        return self.learner.order(self._step)

    def parameters(self) -> list[nn.Parameter]:
        """What the learner learns, for an optimizer; nothing for a fixed or frozen order."""
        return [] if self.learner is None or self._fixed is not None else list(self.learner.parameters())

    def loss(self, losses: Tensor) -> Tensor:
        """What to add to the model's loss for a learner by reward, from the losses (B,); else zero."""
        if self.learner is None or self._fixed is not None:
            return losses.new_zeros(())
        return self.learner.loss(losses)

    def freeze(self) -> None:
        """Read in the order found, from now on also in training."""
        reading = self.order() if self.learner is None else self.learner.reading(self._step)
        self._fixed = reading.clone() if isinstance(reading, Tensor) else reading

    def remove(self) -> None:
        """Leave the model as it was."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if isinstance(self._place.module, _KeepAll):
            del self._place.owner.patch_drop
            self._place.owner.patch_drop = None  # type: ignore[assignment]
        _trace_anew()

    def indifferent(self, *inputs: Any, **named: Any) -> bool:
        """Whether the model gives the same logits in three orders, up to rounding, for these inputs."""
        return is_indifferent(self._model, self._reading_in, self.order().shape[-1], inputs, named)

    def __deepcopy__(self, memo: dict) -> "Handle":
        """Itself: a copy of the model, such as one of averaged weights, reads as the model does."""
        return self

    def _put_hooks(self, restore: bool) -> list[RemovableHandle]:
        place = self._place
        if place.module is None:
            place.owner.patch_drop = _KeepAll()
        module = place.module
        assert module is not None
        if any(isinstance(getattr(hook, "__self__", None), Handle) for hook in _hooks_of(module)):
            raise ValueError(
                f"an order is attached to {place.name} already: call its handle's remove() first"
            )
        hooks = [self._model.register_forward_pre_hook(self._try, with_kwargs=True)]
        if place.leave:
            hooks.append(module.register_forward_hook(self._read_output))
            positions = position_modules(place.owner)
            hooks += [each.register_forward_hook(self._follow_positions) for each in positions]
        else:
            hooks.append(module.register_forward_pre_hook(self._read_input, with_kwargs=True))
            hooks.append(module.register_forward_hook(self._say_kept))
        if restore:
            assert place.restore is not None
            hooks.append(getattr(place.owner, place.restore).register_forward_hook(self._put_back))
        return hooks

    def _try(self, model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Before the model is first used, see whether it cares; not when compiled, which would trace that."""
        if self._tried or torch.compiler.is_compiling():
            return
        self._tried = True
        if is_indifferent(model, self._reading_in, self.order().shape[-1], inputs, named):
            name = type(model).__name__
            warnings.warn(f"{name} gives the same logits in three orders: no order can help it", stacklevel=2)

    @contextmanager
    def _reading_in(self, order: Tensor) -> Iterator[None]:
        self._forced = order
        try:
            yield
        finally:
            self._forced = None

    def _read_input(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if inputs:
            return (self._read(inputs[0], module.training), *inputs[1:]), named
        name = next((key for key, value in named.items() if isinstance(value, Tensor)), None)
        if name is None:
            raise ValueError(f"{self._place.name} is called without a tensor: {HOW}")
        return inputs, {**named, name: self._read(named[name], module.training)}

    def _read_output(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (self._read(output[0], module.training), *output[1:])
        return self._read(output, module.training)

    def _read(self, tokens: Any, training: bool) -> Tensor:
        """Tokens (B, prefix + N, D) in the order that is due."""
        if not isinstance(tokens, Tensor) or tokens.dim() != 3:
            what = f"a tensor {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
            raise ValueError(f"{what} reaches {self._place.name}, and not tokens (B, L, D): {HOW}")
        if self._forced is None and self._fixed is None:
            return self._read_learned(tokens, training)
        return self._read_in(tokens, self._fixed if self._forced is None else self._forced)

    @_disable_dynamo  # a compiled model breaks off here: what is sampled is no part of its graph
    def _read_learned(self, tokens: Tensor, training: bool) -> Tensor:
        assert self.learner is not None
        if not training:
            return self._read_in(tokens, self.learner.reading(self._step))
        if self._sampled is None:
            with torch.enable_grad():  # checkpointing may read without a gradient first, and then with one
                self._sampled = self.learner.sample(self._step)
        self._reads += 1
        if self._reads == REPEATS:
            text = f"{REPEATS} batches were read at step {self._step}: call handle.step() after each"
            warnings.warn(f"{text} optimizer.step(), or use a callback of reorder.integrations", stacklevel=2)
        order = self._sampled
        if isinstance(order, Tensor) and order.dim() == 2:  # `paired`: each for its part of the images
            order = order.repeat_interleave(len(tokens) // len(order), 0)
        return self._read_in(tokens, order)

    def _read_in(self, tokens: Tensor, order: Reading | None) -> Tensor:
        order = known(tokens[:, self.prefix :], order)
        self._now = now = plain(order)
        assert now is not None
        if tokens.shape[1] - self.prefix != now.shape[-1]:
            raise ValueError(
                f"{tokens.shape[1]} tokens reach {self._place.name}, of which {self.prefix} are no patches, "
                f"but the order is of {now.shape[-1]} patches: give another prefix= or an order of that grid"
            )
        return read(tokens, order, self.prefix)

    def _say_kept(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        """EVA's patch dropout also gives the patches that it kept (B, kept), or None for all."""
        if self._place.name != "patch_drop" or not isinstance(output, tuple):
            return output
        tokens, kept = output
        assert self._now is not None
        order = self._now.to(tokens.device).expand(len(tokens), -1)
        return tokens, order if kept is None else order.gather(1, kept)

    def _follow_positions(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        assert self._now is not None
        return follow(output, self._now, self.prefix)

    def _put_back(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        assert self._now is not None
        slot_of = invert(self._now)
        if isinstance(output, tuple):
            return (read(output[0], slot_of, self.prefix), *output[1:])
        if hasattr(output, "last_hidden_state"):
            output.last_hidden_state = read(output.last_hidden_state, slot_of, self.prefix)
            return output
        return read(output, slot_of, self.prefix)


class _KeepAll(nn.Module):
    """Stands in the place that EVA has for patch dropout, and drops nothing."""

    def forward(self, tokens: Tensor) -> tuple[Tensor, None]:
        return tokens, None


def _checked(order: str | Path | Tensor, grid: tuple[int, int] | None) -> Tensor:
    """An order by name, file or itself, if it is one, of the grid where that is known."""
    if isinstance(order, str | Path):
        assert grid is not None
        return named_order(order, grid)
    if grid is not None and order.shape[-1:] != (grid[0] * grid[1],):
        shape = tuple(order.shape)
        raise ValueError(f"an order of shape {shape} cannot read a grid of {grid[0]}x{grid[1]} patches")
    return validate(order, order.shape[-1] if order.dim() else 0)


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model inside what torch.compile or data parallelism put around it."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, DistributedDataParallel | nn.DataParallel):
            inner = model.module
        if inner is None:
            return model
        model = inner


def _hooks_of(module: nn.Module) -> list[Any]:
    return [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]


def _trace_anew() -> None:
    """Have compiled models notice hooks that came or went, which they do not look for."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
