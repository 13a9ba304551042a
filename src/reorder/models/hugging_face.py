"""Hugging Face's sequence models by name, as backbones: hf:<model type, configuration file or hub name>."""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reorder.models.external import External, external, takes_embeddings
from reorder.models.patches import initial_std
from reorder.models.sizes import Size

# N patches, L = N + 1 tokens

# Options that no configuration gets.
OURS = ("positions", "pixel_norm", "readout", "pretrained", "slot_positions")
# Tables of a position for each slot, by the last part of their name.
SLOT_POSITIONS = ("wpe", "position_embeddings", "embed_positions", "position_embedding")
# Parts that get no gradient when tokens are given and hidden states are read.
LEFT_OVER = ("pooler", "query_global", "key_global", "value_global")


def hugging_face(
    name: str,
    size: Size,
    length: int,
    *,
    readout: str = "last",
    pretrained: bool = False,
    slot_positions: bool = True,
    **settings: Any,
) -> External:
    """The model that `name` says as a backbone that reads L tokens, its weights random unless `pretrained`.

    Settings go to its configuration. A model type has the width, blocks and heads of `size`; a file or a
    model of the hub has its own. `slot_positions=False` leaves out a table of positions that belong to slots.
    """
    for option, value in (("pretrained", pretrained), ("slot_positions", slot_positions)):
        if not isinstance(value, bool):
            raise ValueError(f"option {option!r} of model {name} must be true or false, got {value!r}")
    library, where = transformers_library(), name.removeprefix("hf:")
    config = _configuration(library, where, size, length, settings, pretrained)
    if hasattr(config, "rescale_every"):
        config.rescale_every = 0  # RWKV would halve weights for evaluation, and a checkpoint save them halved
    try:
        if pretrained and torch.get_default_device().type != "meta":
            with quiet_hub():
                model = library.AutoModel.from_pretrained(where, config=config, dtype=torch.float32)
        else:
            model = library.AutoModel.from_config(config)
    except Exception as error:  # of the library, of the hub, or of a module whose numbers do not fit
        raise ValueError(f"cannot build {name}: {line_of(error)}") from None
    if not takes_embeddings(model):
        raise ValueError(f"{name} does not read tokens: {type(model).__name__} has no argument inputs_embeds")
    if not slot_positions:
        leave_out_slot_positions(model, name)
    freeze_left_over(model)
    return external(model, length, readout=readout)


def leave_out_slot_positions(model: nn.Module, name: str) -> None:
    """Zero the positions that a model adds by slot, for good."""
    found = [
        module
        for path, module in model.named_modules()
        if path.split(".")[-1] in SLOT_POSITIONS and isinstance(module, nn.Embedding)
    ]
    if not found:
        raise ValueError(f"slot_positions=false: {name} has no table of positions that could be left out")
    for table in found:
        nn.init.zeros_(table.weight)
        table.weight.requires_grad_(False)


def freeze_left_over(model: Any) -> None:
    """No gradient for what takes no part, which several processes would wait for: words, poolers."""
    for parameter in model.get_input_embeddings().parameters():
        parameter.requires_grad_(False)
    for name, parameter in model.named_parameters():
        if any(part in LEFT_OVER for part in name.split(".")):
            parameter.requires_grad_(False)


def _configuration(
    library: Any, where: str, size: Size, length: int, settings: dict[str, Any], pretrained: bool
) -> Any:
    """The configuration of a model: of a type in a size, or from a file or the hub; with settings changed."""
    kind = where in library.CONFIG_MAPPING and not pretrained
    found = {"model_type": where} if kind else _found(library, where, pretrained)
    config_class = library.CONFIG_MAPPING[found.pop("model_type")]
    own = config_class.attribute_map  # such as n_embd for hidden_size
    try:
        usual = config_class()
        for key in settings:
            if not hasattr(usual, key):
                near = get_close_matches(key, [*own, *usual.to_dict()])
                theirs = ", ".join(near) or f"those of {config_class.__name__}"
                raise ValueError(f"unknown option {key!r}; choose from {', '.join(OURS)}, {theirs}")
        start = _of_size(usual, size, length, settings) if kind else {}
        start |= {} if pretrained else _without_words(usual)
        changed = {own.get(key, key): value for key, value in (start | settings).items()}
        return config_class(**(found | changed))
    except Exception as error:  # the library's own kinds
        raise ValueError(f"hf:{where}: {line_of(error)}") from None


def _found(library: Any, where: str, pretrained: bool) -> dict[str, Any]:
    """What the configuration file of a path or of a model of the hub says."""
    near = ", ".join(get_close_matches(where, list(library.CONFIG_MAPPING)) or ("mamba", "gpt2", "bert"))
    expected = f"hf:{where} is not a model type ({near}, ...), a config.json or OWNER/NAME of the hub"
    if "/" not in where and not Path(where).exists() and not pretrained:
        raise ValueError(expected)
    try:
        with quiet_hub():
            found = dict(library.PretrainedConfig.get_config_dict(where)[0])
    except Exception as error:  # no such file or repository, no network, no JSON
        raise ValueError(f"{expected}: {line_of(error)}") from None
    if (kind := found.get("model_type")) not in library.CONFIG_MAPPING:
        raise ValueError(f"hf:{where}: its model_type is {kind!r}, which is not known here")
    return found


@contextmanager
def quiet_hub() -> Iterator[None]:
    """No line for every failed attempt to reach the hub."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)


def _of_size(usual: Any, size: Size, length: int, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a size, where a configuration has them by one of the library's usual names."""
    window = settings.get("attention_window", getattr(usual, "attention_window", 0))  # Longformer pads to it
    padding = max(window) if isinstance(window, list) else window
    wanted = {
        "hidden_size": size.width,
        "num_hidden_layers": size.depth,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.heads,
        "num_heads": size.heads,
        "intermediate_size": 4 * size.width,
        "max_position_embeddings": length + padding + 2,  # RoBERTa's family counts from 2
    }
    if getattr(usual, "initializer_range", None) == 0.02:
        wanted["initializer_range"] = initial_std(size.width)
    if hasattr(usual, "expand"):  # Mamba and Mamba-2
        del wanted["intermediate_size"]
        wanted["head_dim"] = usual.expand * size.width // size.heads
        wanted["n_groups"] = math.gcd(getattr(usual, "n_groups", 1), size.heads)
    fixed = {key for key, value in vars(type(usual)).items() if isinstance(value, property)}
    return {key: value for key, value in wanted.items() if hasattr(usual, key) and key not in fixed}


def _without_words(usual: Any) -> dict[str, Any]:
    """As few words as a model can have, as none are read."""
    padding = getattr(usual, "pad_token_id", None)
    found = {"vocab_size": 1 if padding is None else padding + 1}
    found |= dict.fromkeys(("bos_token_id", "eos_token_id", "sep_token_id"))
    return {key: value for key, value in found.items() if getattr(usual, key, None) is not None}


def transformers_library() -> Any:
    try:
        import transformers
    except ImportError:
        raise ValueError("hf: models need transformers: pip install 'reorder[hf]'") from None
    return transformers


def line_of(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
