"""Chameleon's VQ-VAE: a small one of the same class, saved in the formats of the real one."""

import builtins
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    ChameleonConfig,
    ChameleonForConditionalGeneration,
    ChameleonVQVAE,
    ChameleonVQVAEConfig,
)
from transformers.models.chameleon.image_processing_pil_chameleon import ChameleonImageProcessorPil

from reorder.prior.chameleon import Chameleon, find_files

SMALL = {
    "embed_dim": 16,
    "num_embeddings": 50,
    "latent_channels": 16,
    "resolution": 64,
    "base_channels": 32,
    "channel_multiplier": [1, 1, 1, 1, 1],
    "num_res_blocks": 1,
    "attn_resolutions": [],
}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = ChameleonVQVAE(ChameleonVQVAEConfig(**SMALL)).eval()
    for parameter in model.parameters():  # the library's own start gives all patches almost the same code
        if parameter.ndim == 4:
            torch.nn.init.normal_(parameter, std=1.5 / parameter[0].numel() ** 0.5)
    torch.nn.init.normal_(model.quantize.embedding.weight, std=2)
    return model


@pytest.fixture
def alone(model, tmp_path):
    """As a VQ-VAE of its own: config.json and model.safetensors."""
    model.save_pretrained(tmp_path / "alone")
    return tmp_path / "alone"


@pytest.fixture
def whole(model, tmp_path):
    """As in the whole model: vq_config in config.json, prefixed tensors in some of several files."""
    sizes = {"vocab_size": 1000, "hidden_size": 64, "intermediate_size": 64}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = ChameleonConfig(**sizes, vocabulary_map={"<image>": 5}, vq_config=SMALL)
    chameleon = ChameleonForConditionalGeneration(config)
    chameleon.model.vqmodel.load_state_dict(model.state_dict())
    chameleon.bfloat16().save_pretrained(tmp_path / "whole", max_shard_size="100KB")
    change(tmp_path / "whole", vq_config=SMALL | {"ch": 128, "out_ch": 3})  # which older versions wrote
    return tmp_path / "whole"


def change(directory, **changes):
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def shards(directory):
    """The names of the files with tensors of the VQ-VAE, and of those without."""
    index = json.loads((directory / "model.safetensors.index.json").read_text())["weight_map"]
    needed = {file for name, file in index.items() if "vqmodel" in name}
    return needed, set(index.values()) - needed


def images(channels=3, shape=(32, 48)):
    return torch.randint(
        256, (7, channels, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(2)
    )


def load(directory, patch_size=16):
    return Chameleon.load(find_files(str(directory)), patch_size)


def test_codes_are_those_of_the_class_after_its_own_processor(model, alone):
    processor = ChameleonImageProcessorPil(do_resize=False, do_center_crop=False)
    pixels = processor(list(images().numpy()), return_tensors="pt", input_data_format="channels_first")
    with torch.no_grad():
        expected = model.encode(torch.as_tensor(pixels["pixel_values"])).image_tokens.view(7, 2, 3)
    tokenizer = load(alone)
    assert tokenizer.codebook_size == 50
    assert torch.equal(tokenizer.encode(images()), expected)
    assert len(expected.unique()) >= 5


def test_of_the_whole_model_only_the_vq_vaes_files_are_read(model, whole):
    needed, others = shards(whole)
    assert len(needed) > 1
    assert others
    for name in others:
        (whole / name).unlink()
    half = ChameleonVQVAE(model.config).eval()
    half.load_state_dict({name: tensor.bfloat16().float() for name, tensor in model.state_dict().items()})
    with torch.no_grad():
        expected = half.encode(images() * 0.0078 - 1.0).image_tokens.view(7, 2, 3)
    assert torch.equal(load(whole).encode(images()), expected)


def test_grey_images_are_grey_in_all_channels(alone):
    tokenizer, grey = load(alone), images(channels=1)
    assert torch.equal(tokenizer.encode(grey), tokenizer.encode(grey.repeat(1, 3, 1, 1)))


def test_a_model_of_another_patch_size_learns_which_to_use(alone):
    with pytest.raises(ValueError, match=r"16x16 pixels; set model.patch_size=16, not 14"):
        load(alone, patch_size=14)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_missing_files_are_named(alone, missing):
    (alone / missing).unlink()
    with pytest.raises(ValueError, match=r"config.json and model.safetensors, or .*index.json"):
        load(alone)


def test_a_missing_shard_is_named(whole):
    missing = max(shards(whole)[0])
    (whole / missing).unlink()
    with pytest.raises(ValueError, match=rf"has no {missing}, which"):
        load(whole)


def test_weights_that_do_not_fit_are_named(alone):
    change(alone, num_embeddings=60)
    with pytest.raises(ValueError, match=r"quantize.embedding.weight is \(50, 16\), but .* \(60, 16\)"):
        load(alone)
    change(alone, num_embeddings=50, num_res_blocks=2)
    with pytest.raises(ValueError, match=r"block.1.* is missing, but config.json asks for"):
        load(alone)


def test_other_files_of_these_names_are_refused(alone):
    file = alone / "model.safetensors"
    tensors = load_file(file)
    save_file({"encoder.conv_in.weight": tensors["encoder.conv_in.weight"]}, file)
    with pytest.raises(ValueError, match=r"no tensor quantize.embedding.weight"):
        load(alone)
    file.write_bytes(b"not a safetensors file")
    with pytest.raises(ValueError, match=r"model.safetensors is not a safetensors file"):
        load(alone)
    (alone / "config.json").write_text("[")
    with pytest.raises(ValueError, match=r"config.json is not JSON"):
        load(alone)


def test_what_is_neither_a_directory_nor_of_the_hub_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"neither a directory nor OWNER/NAME"):
        find_files(str(tmp_path / "nothing"))


def test_the_hub_is_asked_for_the_vq_vaes_files_only(whole, monkeypatch):
    from huggingface_hub.errors import EntryNotFoundError

    asked = []

    def download(repository, name):
        asked.append((repository, name))
        if not (whole / name).exists():
            raise EntryNotFoundError("404")
        return str(whole / name)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    load("owner/name")
    assert {repository for repository, _ in asked} == {"owner/name"}
    assert {name for _, name in asked} == {"config.json", "model.safetensors.index.json"} | shards(whole)[0]


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch):
    def download(repository, name):
        raise OSError("no\nnetwork")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    with pytest.raises(ValueError, match=r"cannot fetch config.json of owner/name from the hub: no network"):
        find_files("owner/name")


def test_without_transformers_the_command_to_install_it_is_said(alone, monkeypatch):
    plain = builtins.__import__

    def without(name, *arguments, **options):
        if name == "transformers":
            raise ImportError
        return plain(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"pip install 'reorder\[vqvae\]'"):
        load(alone)
