"""Small models of others' making: modules of timm's shape, Hugging Face's with tiny settings, a GRU."""

from functools import partial

import torch
from torch import nn

# B images, N = 16 patches of 4x4 pixels, D = 8 width

WIDTH, CLASSES, PATCHES = 8, 5, 16


class PatchEmbed(nn.Module):
    """Images (B, 3, 16, 16) to tokens (B, N, D), as timm's."""

    grid_size, num_patches = (4, 4), PATCHES

    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(3, WIDTH, 4, 4)

    def forward(self, images):
        return self.proj(images).flatten(2).transpose(1, 2)


class Block(nn.Module):
    """Full attention, turned by rotary positions (..., N, 2 D) where there are some."""

    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, tokens, rope=None):
        query, key, value = self.qkv(self.norm(tokens))[:, None].chunk(3, -1)  # (B, 1, L, D)
        if rope is not None:
            query, key = turned(query, rope), turned(key, rope)
        read = nn.functional.scaled_dot_product_attention(query, key, value)[:, 0]
        return tokens + self.mlp(read).tanh()


def turned(tokens, rope):
    """Tokens (B, 1, 1 + N, D) but for the first, turned by sines and cosines."""
    sines, cosines = rope.chunk(2, -1)
    patches = tokens[:, :, 1:]
    other = torch.stack([-patches[..., 1::2], patches[..., ::2]], -1).reshape(patches.shape)
    return torch.cat([tokens[:, :, :1], patches * cosines + other * sines], 2)


class PatchDropout(nn.Module):
    """Keeps a part of the patches, in training, as timm's; `indices` gives which, as EVA's."""

    def __init__(self, prob, prefix, ordered=False, indices=False):
        super().__init__()
        self.prob, self.num_prefix_tokens, self.ordered, self.indices = prob, prefix, ordered, indices

    def forward(self, tokens):
        kept = None
        if self.training:
            special, patches = tokens[:, : self.num_prefix_tokens], tokens[:, self.num_prefix_tokens :]
            count = int(patches.shape[1] * (1 - self.prob))
            kept = torch.rand(patches.shape[:2]).argsort(-1)[:, :count]
            kept = kept.sort(-1).values if self.ordered else kept
            patches = patches.gather(1, kept[..., None].expand(-1, -1, patches.shape[2]))
            tokens = torch.cat([special, patches], 1)
        return (tokens, kept) if self.indices else tokens


class TimmVit(nn.Module):
    """Has the attributes of timm's VisionTransformer, and uses them in its sequence."""

    def __init__(self, class_token=True, registers=0, distilled=False, patch_drop=0.0, ordered=True):
        super().__init__()
        self.num_prefix_tokens = class_token + distilled + registers
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH)) if class_token else None
        self.dist_token = nn.Parameter(torch.randn(1, 1, WIDTH)) if distilled else None
        self.reg_token = nn.Parameter(torch.randn(1, registers, WIDTH)) if registers else None
        self.pos_embed = nn.Parameter(torch.randn(1, PATCHES + self.num_prefix_tokens, WIDTH))
        self.pos_drop = nn.Dropout(0.0)
        drops = PatchDropout(patch_drop, self.num_prefix_tokens, ordered)
        self.patch_drop = drops if patch_drop else nn.Identity()
        self.norm_pre = nn.Identity()
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def _pos_embed(self, tokens):
        special = [each for each in (self.cls_token, self.dist_token, self.reg_token) if each is not None]
        tokens = torch.cat([each.expand(len(tokens), -1, -1) for each in special] + [tokens], 1)
        return self.pos_drop(tokens + self.pos_embed)

    def forward(self, images):
        tokens = self.norm_pre(self.patch_drop(self._pos_embed(self.patch_embed(images))))
        return self.head(self.norm(self.blocks(tokens)).mean(1))


class Rope(nn.Module):
    def get_embed(self):
        """Sines and cosines (N, 2 D), of angles by the patch's row and column."""
        rows, columns = torch.arange(PATCHES) // 4, torch.arange(PATCHES) % 4
        angles = torch.stack([rows, rows / 3, columns, columns / 3], 1).repeat_interleave(2, 1)
        return torch.cat([angles.sin(), angles.cos()], -1)


class TimmEva(nn.Module):
    """Has the attributes of timm's Eva: patch_drop is None unless it drops, rotary positions follow it."""

    def __init__(self, patch_drop=0.0):
        super().__init__()
        self.num_prefix_tokens = 1
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.randn(1, PATCHES + 1, WIDTH))
        self.pos_drop = nn.Dropout(0.0)
        self.patch_drop = PatchDropout(patch_drop, 1, True, indices=True) if patch_drop else None
        self.rope = Rope()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        tokens = self.patch_embed(images)
        tokens = torch.cat([self.cls_token.expand(len(tokens), -1, -1), tokens], 1)
        tokens, rope = self.pos_drop(tokens + self.pos_embed), self.rope.get_embed()
        if self.patch_drop is not None:
            tokens, kept = self.patch_drop(tokens)
            if kept is not None:
                rope = rope.expand(len(tokens), -1, -1)
                rope = rope.gather(1, kept[..., None].expand(-1, -1, rope.shape[-1]))[:, None]
        for block in self.blocks:
            tokens = block(tokens, rope=rope)
        return self.head(self.norm(tokens)[:, 0])


class CausalReader(nn.Module):
    """A class token and patches with positions, read by a GRU, which answers at the last."""

    def __init__(self):
        super().__init__()
        self.embed = PatchEmbed()
        self.positions = nn.Parameter(0.3 * torch.randn(PATCHES, WIDTH))
        self.class_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.recurrent = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def tokens(self, images):
        patches = self.embed(images) + self.positions
        return torch.cat([self.class_token.expand(len(patches), -1, -1), patches], 1)

    def answer(self, tokens):
        """Logits for tokens as they are: past what is hooked."""
        return self.head(self.recurrent.forward(tokens)[0][:, -1])

    def forward(self, images):
        return self.head(self.recurrent(self.tokens(images))[0][:, -1])


class Headed(nn.Module):
    """A model of Hugging Face's that has no head, with one."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.head = nn.Linear(model.config.hidden_size, CLASSES)

    def forward(self, images):
        return self.head(self.model(images).last_hidden_state.mean(1))


def hugging_face_models():
    """Functions that make tiny classifiers of Hugging Face's, by name; none without transformers."""
    try:
        import transformers
    except ImportError:
        return {}
    small = {
        "image_size": 16, "patch_size": 4, "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 32,
    }  # fmt: skip
    bias = {"use_absolute_position_embeddings": True, "use_mean_pooling": False}
    kinds: dict[str, tuple[str, dict]] = {
        "hf-vit": ("ViT", {}),
        "hf-deit": ("DeiT", {}),
        "hf-dinov2": ("Dinov2", {"num_labels": CLASSES}),
        "hf-dinov2-registers": ("Dinov2WithRegisters", {"num_register_tokens": 2, "num_labels": CLASSES}),
        "hf-dinov3": ("DINOv3ViT", {"num_register_tokens": 2}),
        "hf-beit": ("Beit", {"use_relative_position_bias": True, **bias}),
        "hf-beit-shared-bias": ("Beit", {"use_shared_relative_position_bias": True, **bias}),
        "hf-siglip": ("Siglip", {}),
        "hf-clip": ("CLIP", {}),
    }
    return {name: partial(_make, transformers, kind, {**small, **own}) for name, (kind, own) in kinds.items()}


def _make(transformers, kind, settings):
    """A classifier whose weights are random, those that start at zero too."""
    if kind in ("Siglip", "CLIP"):
        config = getattr(transformers, f"{kind}Config")(vision_config=settings)
    else:
        config = getattr(transformers, f"{kind}Config")(**settings)
    if kind == "DINOv3ViT":
        model = Headed(transformers.DINOv3ViTModel(config))
    else:
        model = getattr(transformers, f"{kind}ForImageClassification")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model
