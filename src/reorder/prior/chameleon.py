"""Chameleon's VQ-VAE, which the paper uses: 8,192 codes of 16x16 pixels, through transformers.

The weights are a directory or a repository of the hub, with the files that transformers writes: config.json
and model.safetensors, or model.safetensors.index.json and the files it names. Of the whole Chameleon model
only the VQ-VAE's tensors are read.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors import safe_open
from torch import Tensor

from reorder.data.ranks import accelerator

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
EMBEDDING = "quantize.embedding.weight"  # after model.vqmodel. in the whole model, alone in the VQ-VAE's own
RESCALE, MEAN = 0.0078, 1.0  # of ChameleonImageProcessor: 0..255 to -1..0.989
ENCODED_PIXELS = 2**18  # at once; the encoder holds about 5 kilobytes for each


class Chameleon:
    version: ClassVar[int] = 1

    def __init__(self, model: Any):
        self.device = accelerator()
        self.model = model.eval().to(self.device)
        self.codebook_size = int(model.config.num_embeddings)
        self.patch_size = 2 ** (len(model.config.channel_multiplier) - 1)

    @classmethod
    def load(cls, files: dict[str, Path], patch_size: int) -> Self:
        """The VQ-VAE in files as `find_files` gives them, for a model of this patch size."""
        config, vqvae = _transformers()
        settings = _read_json(files[CONFIG])
        settings = settings.get("vq_config", settings)
        try:
            model = vqvae(config(**settings))
        except Exception as error:  # whatever else is called config.json
            raise ValueError(f"{files[CONFIG]} is not of Chameleon's VQ-VAE: {_line(error)}") from None
        tensors = _read_tensors(files)
        wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        for name, shape in wanted.items():
            got = tuple(tensors[name].shape) if name in tensors else "missing"
            if got != shape:
                raise ValueError(f"{files[CONFIG].parent}: {name} is {got}, but {CONFIG} asks for {shape}")
        model.load_state_dict({name: tensors[name].float() for name in wanted})
        tokenizer = cls(model)
        if tokenizer.patch_size != patch_size:
            raise ValueError(
                f"the chameleon tokenizer has a code for each {tokenizer.patch_size}x{tokenizer.patch_size} "
                f"pixels; set model.patch_size={tokenizer.patch_size}, not {patch_size}"
            )
        return tokenizer

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """Images, uint8 (B, 1 or 3, H, W), to codes (B, rows, columns)."""
        parts = images.split(max(1, ENCODED_PIXELS // images[0, 0].numel()))
        return torch.cat([self._encode(part) for part in parts])

    def _encode(self, images: Tensor) -> Tensor:
        pixels = images.to(self.device).expand(-1, 3, -1, -1).float().mul(RESCALE).sub(MEAN)
        latent = self.model.quant_conv(self.model.encoder(pixels))
        codes = self.model.quantize(latent)[2]
        return codes.view(len(images), *latent.shape[2:]).cpu()


def find_files(weights: str) -> dict[str, Path]:
    """The files to read, by name, in a directory or downloaded from the hub."""
    directory = Path(weights).expanduser()
    if directory.is_dir():
        return _choose_files(lambda name: path if (path := directory / name).is_file() else None, weights)
    if not _is_repository(weights):
        raise ValueError(f"the weights {weights} are neither a directory nor OWNER/NAME of the hub")
    return _choose_files(lambda name: _download(weights, name), weights)


def _choose_files(find: Callable[[str], Path | None], where: str) -> dict[str, Path]:
    config, index, weights = find(CONFIG), find(INDEX), None
    if index is None:
        weights = find(WEIGHTS)
    if config is None or (index is None and weights is None):
        raise ValueError(f"{where} must have {CONFIG} and {WEIGHTS}, or {CONFIG}, {INDEX} and its files")
    if index is None:
        assert weights is not None
        return {CONFIG: config, WEIGHTS: weights}
    try:
        file_of = dict(_read_json(index)["weight_map"])
        prefix = _prefix(file_of, index)
    except (KeyError, TypeError):
        raise ValueError(f"{index} has no weight_map") from None
    files = {CONFIG: config}
    for name in dict.fromkeys(file for tensor, file in sorted(file_of.items()) if tensor.startswith(prefix)):
        if not isinstance(name, str) or (path := find(name)) is None:
            raise ValueError(f"{where} has no {name}, which {INDEX} names")
        files[name] = path
    return files


def _prefix(names: Any, where: Path) -> str:
    """What the names of the VQ-VAE's tensors begin with."""
    found = [name for name in names if name.endswith(EMBEDDING)]
    if len(found) != 1:
        raise ValueError(f"{where} has no tensor {EMBEDDING} or model.vqmodel.{EMBEDDING}")
    return str(found[0].removesuffix(EMBEDDING))


def _read_tensors(files: dict[str, Path]) -> dict[str, Tensor]:
    """The VQ-VAE's tensors, by their names in it."""
    places: dict[str, Path] = {}
    for file in (path for name, path in files.items() if name != CONFIG):
        try:
            with safe_open(file, "pt") as opened:
                places |= dict.fromkeys(opened.keys(), file)
        except Exception as error:  # the library's own kind
            raise ValueError(f"{file} is not a safetensors file: {_line(error)}") from None
    prefix = _prefix(places, next(path for name, path in files.items() if name != CONFIG))
    tensors = {}
    for file in set(places.values()):
        with safe_open(file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118, the file is not a dictionary
                if name.startswith(prefix):
                    tensors[name.removeprefix(prefix)] = opened.get_tensor(name)
    return tensors


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} is not JSON: {_line(error)}") from None


def _is_repository(weights: str) -> bool:
    return weights.count("/") == 1 and not weights.startswith((".", "/", "~"))


def _download(repository: str, name: str) -> Path | None:
    """A file of a repository of the hub, from the library's cache if it is there; none if it has none."""
    _transformers()  # which brings the library
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repository, name))
    except Exception as error:  # no network, no such repository, a licence not yet accepted, a full disk
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            return None
        raise ValueError(f"cannot fetch {name} of {repository} from the hub: {_line(error)}") from None


def _transformers() -> tuple[Any, Any]:
    """The classes of the VQ-VAE's configuration and of the VQ-VAE."""
    try:
        from transformers import ChameleonVQVAE, ChameleonVQVAEConfig
    except ImportError:
        raise ValueError("the chameleon tokenizer needs transformers: pip install 'reorder[vqvae]'") from None
    return ChameleonVQVAEConfig, ChameleonVQVAE


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
