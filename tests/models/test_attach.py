"""An order attached to a model that is not ours: read where tokens have their positions, and taken off."""

import copy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from external_models import WIDTH, CausalReader, TimmEva, TimmVit, hugging_face_models
from torch import nn
from torch.utils.checkpoint import checkpoint

import reorder
from reorder.models.places import find_place

# B = 3 images, N = 16 patches in a 4x4 grid, D width

GRID = (4, 4)
IMAGES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
SHUFFLED = torch.randperm(16, generator=torch.Generator().manual_seed(1))
MODELS = {
    "timm-vit": lambda: TimmVit(),
    "timm-deit": lambda: TimmVit(distilled=True),
    "timm-registers": lambda: TimmVit(registers=2),
    "timm-no-class": lambda: TimmVit(class_token=False),
    "timm-eva": lambda: TimmEva(),
    **hugging_face_models(),
}
CAUSAL = {"at": "recurrent", "prefix": 1}

pytestmark = pytest.mark.filterwarnings("ignore:.*gives the same logits in three orders")


def made(name):
    torch.manual_seed(0)
    return MODELS[name]().eval()


def logits(model, images=IMAGES):
    output = model(images)
    return output if isinstance(output, torch.Tensor) else output.logits


@pytest.mark.parametrize("name", MODELS)
def test_read_in_row_order_a_model_gives_the_same_bits(name):
    model = made(name)
    before, keys = logits(model), list(model.state_dict())
    handle = reorder.attach(model, "row")
    assert torch.equal(logits(model), before)
    assert list(model.state_dict()) == keys
    handle.remove()
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("name", MODELS)
def test_full_attention_is_indifferent_to_the_order_as_positions_go_with_their_patches(name):
    """Positions that stayed with the slots would change the logits: absolute, rotary or as biases."""
    model = made(name)
    before = logits(model)
    handle = reorder.attach(model, SHUFFLED)
    assert torch.allclose(logits(model), before, atol=1e-5)
    handle.remove()
    each = torch.stack([torch.randperm(16) for _ in IMAGES])
    reorder.attach(model, each)
    assert torch.allclose(logits(model), before, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_the_first_block_gets_the_special_tokens_and_then_the_patches_in_the_order(name):
    model = made(name)
    owner = find_place(model).owner
    blocks = (
        owner.blocks
        if hasattr(owner, "blocks")
        else next(
            module for module in owner.modules() if isinstance(module, nn.ModuleList) and len(module) == 2
        )
    )
    got = []
    blocks[0].register_forward_pre_hook(
        lambda module, inputs, named: got.append(inputs[0] if inputs else named["hidden_states"]),
        with_kwargs=True,
    )
    logits(model)
    handle = reorder.attach(model, SHUFFLED)
    logits(model)
    special, plain, read = handle.prefix, got[0], got[-1]
    assert plain.shape[1] == special + 16
    assert torch.equal(read[:, :special], plain[:, :special])
    assert torch.equal(read[:, special:], plain[:, special:][:, SHUFFLED])


def test_the_special_tokens_of_each_family_are_counted():
    counted = {name: find_place(made(name)).prefix for name in MODELS}
    expected = {"timm-vit": 1, "timm-deit": 2, "timm-registers": 3, "timm-no-class": 0, "timm-eva": 1}
    expected |= {"hf-vit": 1, "hf-deit": 2, "hf-dinov2": 1, "hf-dinov2-registers": 3, "hf-dinov3": 3}
    expected |= {"hf-beit": 1, "hf-beit-shared-bias": 1, "hf-siglip": 0, "hf-clip": 1}
    assert counted == expected
    assert {find_place(made(name)).grid for name in MODELS} == {GRID}


def test_a_recurrent_model_gets_exactly_its_tokens_in_the_order():
    torch.manual_seed(0)
    model = CausalReader().eval()
    tokens = model.tokens(IMAGES)  # with their positions, after a class token
    assert torch.equal(model(IMAGES), model.answer(tokens))
    handle = reorder.attach(model, SHUFFLED, **CAUSAL)
    expected = model.answer(torch.cat([tokens[:, :1], tokens[:, 1:][:, SHUFFLED]], 1))
    assert torch.equal(model(IMAGES), expected)
    assert not torch.allclose(expected, model.answer(tokens), atol=1e-3)
    handle.remove()
    assert torch.equal(model(IMAGES), model.answer(tokens))


@pytest.mark.parametrize("name", ["timm-vit", "timm-eva", "hf-vit", "hf-dinov2", "hf-beit"])
def test_restored_tokens_are_where_they_were(name):
    model = made(name)
    owner = find_place(model).owner
    features = []
    last = owner.norm if hasattr(owner, "norm") else owner.layernorm
    reorder.attach(model, SHUFFLED, restore=True)
    last.register_forward_hook(lambda module, inputs, output: features.append(output))
    logits(model)
    restored = features[-1]
    other = made(name)
    owner = find_place(other).owner
    last = owner.norm if hasattr(owner, "norm") else owner.layernorm
    last.register_forward_hook(lambda module, inputs, output: features.append(output))
    logits(other)
    assert torch.allclose(restored, features[-1], atol=1e-5)


def test_a_named_module_gets_tokens_in_the_order_and_gives_them_back_in_raster_order():
    model = nn.Sequential(nn.Identity(), nn.Identity())
    tokens = torch.randn(2, 5, 3)
    order = torch.tensor([2, 0, 3, 1])
    handle = reorder.attach(model, order, at="1", prefix=1, restore=True)
    seen = []
    model[1].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    assert torch.equal(model(tokens), tokens)
    assert torch.equal(seen[-1], tokens[:, [0, 3, 1, 4, 2]])
    handle.remove()


def learner_of(**options):
    return reorder.OrderLearner(
        GRID, **{"init": "row", "total_steps": 40, "warmup_fraction": 0.25, "policy_fraction": 0.5, **options}
    )


def test_in_training_a_learner_samples_once_a_step_and_in_evaluation_its_mode_is_read():
    torch.manual_seed(0)
    model, learner, twin = CausalReader(), learner_of(), learner_of()
    handle = reorder.attach(model, learner, **CAUSAL)
    read = []
    model.recurrent.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0][:, 1:]))
    tokens = model.tokens(IMAGES)[:, 1:]
    for step in range(40):
        model.train()
        model(IMAGES)
        model(IMAGES)  # as when gradients are accumulated
        order = twin.sample(step)
        order = getattr(order, "order", order)
        assert torch.equal(read[-1], tokens[:, order])
        assert torch.equal(read[-2], read[-1])
        model.eval()
        model(IMAGES)
        assert torch.equal(read[-1], tokens[:, twin.order(step)])
        assert torch.equal(handle.order(), twin.order(step))
        handle.step()


def trained(model, learner, handle, steps=40, forward=None):
    """The orders that a model learned from which patch must be read last: 5."""
    optimizer = torch.optim.Adam([*model.parameters()], lr=1e-3)
    moving = torch.optim.Adam(handle.parameters(), lr=learner.learning_rate)
    model.train()
    for step in range(steps):
        handle.step(step)
        output = model(IMAGES) if forward is None else forward(IMAGES)
        losses = nn.functional.cross_entropy(output, torch.tensor([0, 1, 2]), reduction="none")
        (losses.mean() + handle.loss(losses)).backward()
        for each in (optimizer, moving):
            each.step()
            each.zero_grad()
    return learner.policy.logits.detach().clone()


@pytest.mark.parametrize(
    "settings",
    [{"estimator": "straight-through"}, {"estimator": "scaled"}, {"image_width": WIDTH}],
    ids=["straight-through", "scaled", "own orders"],
)
def test_an_attached_learner_learns_the_same_as_one_whose_orders_are_read_by_hand(settings):
    learned = []
    for by_hand in (False, True):
        torch.manual_seed(0)
        model, learner = CausalReader(), learner_of(**settings)
        if not by_hand:
            handle = reorder.attach(model, learner, **CAUSAL)
            learned.append(trained(model, learner, handle))
            continue
        groups = [*model.parameters()]
        optimizers = (
            torch.optim.Adam(groups, lr=1e-3),
            torch.optim.Adam(learner.parameters(), lr=learner.learning_rate),
        )
        for step in range(40):
            tokens = reorder.read(model.tokens(IMAGES), learner.sample(step), prefix=1)
            output = model.answer(tokens)
            losses = nn.functional.cross_entropy(output, torch.tensor([0, 1, 2]), reduction="none")
            (losses.mean() + learner.loss(losses)).backward()
            for each in optimizers:
                each.step()
                each.zero_grad()
        learned.append(learner.policy.logits.detach().clone())
    assert torch.equal(*learned)
    assert not torch.equal(learned[0], learner_of(**settings).policy.logits)


@pytest.mark.parametrize("image_width", [None, WIDTH])
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_reads_in_the_same_order_again(reentrant, image_width):
    learned = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model, learner = CausalReader(), learner_of(image_width=image_width)
        handle = reorder.attach(model, learner, **CAUSAL)

        def forward(images, model=model):
            tokens = model.tokens(images)
            output = checkpoint(model.recurrent, tokens, use_reentrant=reentrant)[0]
            return model.head(output[:, -1])

        learned.append(trained(model, learner, handle, forward=forward if checkpointing else None))
    assert torch.equal(*learned)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["learner", "order"])
def test_a_compiled_model_reads_in_the_orders(kind):
    torch.manual_seed(0)
    model = CausalReader()
    compiled = torch.compile(model, backend="aot_eager")
    plain = compiled(IMAGES)  # compiled before anything is attached
    assert torch.allclose(plain, model.answer(model.tokens(IMAGES)), atol=1e-6)
    if kind == "order":
        handle = reorder.attach(compiled, SHUFFLED, **CAUSAL)
        tokens = model.tokens(IMAGES)
        expected = model.answer(torch.cat([tokens[:, :1], tokens[:, 1:][:, SHUFFLED]], 1))
        assert torch.allclose(compiled(IMAGES), expected, atol=1e-6)
    else:
        learned = []
        for compiles in (False, True):
            twin, learner = copy.deepcopy(model), learner_of()
            twin.load_state_dict(model.state_dict())
            handle = reorder.attach(twin, learner, **CAUSAL)
            forward = torch.compile(twin, backend="aot_eager") if compiles else None
            learned.append(trained(twin, learner, handle, 20, forward))
        assert torch.allclose(*learned, atol=1e-5)
        assert not torch.allclose(learned[0], learner_of().policy.logits, atol=1e-3)
        handle = reorder.attach(model, learner_of(), **CAUSAL)
    handle.remove()
    assert torch.allclose(compiled(IMAGES), plain, atol=1e-6)


@pytest.mark.slow
def test_a_model_with_a_fixed_order_compiles_to_one_graph():
    torch.manual_seed(0)
    model = TimmVit().eval()
    before = model(IMAGES)
    reorder.attach(model, SHUFFLED)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(IMAGES), before, atol=1e-5)


PROCESS = """
import sys
import torch.distributed.nn  # before there is a group, which it would keep alive
import torch, reorder
sys.path.insert(0, sys.argv[1])
from external_models import CausalReader
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(CausalReader())
learner = reorder.OrderLearner((4, 4), "row", total_steps=12, warmup_fraction=0.25, policy_fraction=0.75)
handle = reorder.attach(model, learner, at="recurrent", prefix=1)
groups = [{"params": model.parameters()}, {"params": handle.parameters(), "lr": learner.learning_rate}]
optimizer = torch.optim.AdamW(groups, lr=1e-3)
every_image = torch.Generator().manual_seed(5)
for step in range(12):
    images = torch.randn(4, 3, 16, 16, generator=every_image)[2 * rank : 2 * rank + 2]
    loss = torch.nn.functional.cross_entropy(model(images), torch.tensor([0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    handle.step()
every = [None] * torch.distributed.get_world_size()
torch.distributed.all_gather_object(every, learner.policy.logits.tolist())
assert all(each == every[0] for each in every), every
assert learner.order().tolist() != list(range(16))
torch.save(learner.policy.logits.detach(), f"{len(every)}.pt")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_under_distributed_data_parallel_learners_stay_alike_and_learn_from_all_images(tmp_path):
    (tmp_path / "loop.py").write_text(PROCESS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "loop.py", str(Path(__file__).parents[1])],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    torch.manual_seed(0)  # the same, in one process, with all images in each batch
    model, learner = CausalReader(), learner_of(total_steps=12, policy_fraction=0.75)
    handle = reorder.attach(model, learner, **CAUSAL)
    groups = [{"params": model.parameters()}, {"params": handle.parameters(), "lr": learner.learning_rate}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    images = torch.Generator().manual_seed(5)
    for _ in range(12):
        output = model(torch.randn(4, 3, 16, 16, generator=images))
        optimizer.zero_grad()
        nn.functional.cross_entropy(output, torch.tensor([0, 1, 0, 1])).backward()
        optimizer.step()
        handle.step()
    assert torch.allclose(torch.load(tmp_path / "2.pt"), learner.policy.logits, atol=1e-4)


def test_a_frozen_order_is_read_in_training_too_and_learns_no_more():
    torch.manual_seed(0)
    model, learner = CausalReader(), learner_of(init="spiral")
    handle = reorder.attach(model, learner, **CAUSAL)
    assert [each.shape for each in handle.parameters()] == [(16,)]
    handle.step(20)
    handle.freeze()
    tokens = model.tokens(IMAGES)
    expected = model.answer(reorder.read(tokens, reorder.scan("spiral", 4, 4), prefix=1))
    assert torch.equal(model.train()(IMAGES), expected)
    assert handle.parameters() == []
    assert handle.loss(torch.ones(3)) == 0


def test_images_are_evaluated_and_frozen_in_their_own_orders():
    torch.manual_seed(0)
    model, learner = CausalReader(), learner_of(image_width=WIDTH)
    for parameter in learner.policy.network.parameters():
        nn.init.normal_(parameter, std=0.3)
    handle = reorder.attach(model, learner, **CAUSAL)
    handle.step(learner.stop_step)
    tokens = model.tokens(IMAGES)
    orders = learner.policy.image_logits(tokens[:, 1:]).argsort(dim=1, descending=True)
    assert not torch.equal(orders[0], orders[1])
    by_hand = [reorder.read(one[None], order, 1)[0] for one, order in zip(tokens, orders, strict=True)]
    expected = model.answer(torch.stack(by_hand))
    assert torch.allclose(model.eval()(IMAGES), expected, atol=1e-6)
    handle.step(learner.start_step)
    handle.freeze()
    assert torch.allclose(model.train()(IMAGES), expected, atol=1e-6)
    assert torch.equal(handle.order(), learner.order())


def test_a_copy_of_a_model_reads_in_the_order_that_the_learner_has_now():
    torch.manual_seed(0)
    model, learner = CausalReader().eval(), learner_of(warmup_fraction=0)
    reorder.attach(model, learner, **CAUSAL)
    averaged = copy.deepcopy(model)
    learner.policy.logits.data = torch.randn(16)
    assert torch.equal(averaged(IMAGES), model(IMAGES))
    tokens = model.tokens(IMAGES)
    assert torch.equal(model(IMAGES), model.answer(reorder.read(tokens, learner.order(), prefix=1)))


def test_paired_orders_are_each_read_by_their_part_of_a_repeated_batch():
    torch.manual_seed(0)
    learner = learner_of(estimator="paired", orders_per_image=2, warmup_fraction=0)
    model = nn.Sequential(nn.Identity(), nn.Identity())
    handle = reorder.attach(model, learner, at="1")
    handle.step(3)
    (tokens,) = learner.repeat(3, torch.randn(4, 16, 2))
    read = model(tokens)
    orders = learner.sample(3)
    assert torch.equal(read[:2], tokens[:2][:, orders[0]])
    assert torch.equal(read[2:], tokens[2:][:, orders[1]])


@pytest.mark.filterwarnings("error")
def test_an_indifferent_model_is_said_to_be_so_once():
    model = made("timm-vit").train()
    reorder.attach(model, SHUFFLED)
    with pytest.warns(UserWarning, match="TimmVit gives the same logits in three orders") as said:
        model(IMAGES)
    assert len(said) == 1
    assert "\n" not in str(said[0].message)
    model(IMAGES)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("at_zero", [False, True])
def test_nothing_is_said_of_a_model_that_cares_or_whose_head_is_zero(at_zero):
    torch.manual_seed(0)
    model = CausalReader()
    if at_zero:
        for parameter in model.head.parameters():
            nn.init.zeros_(parameter)
    handle = reorder.attach(model, SHUFFLED, **CAUSAL)
    model(IMAGES)
    assert not handle.indifferent(IMAGES)


def test_trying_a_model_leaves_no_trace_in_it():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Flatten(), nn.Linear(32, 2))
    model[2].eval()
    twin = copy.deepcopy(model)
    reorder.attach(model, torch.arange(16), at="1")
    tokens = torch.randn(4, 16, 2)
    results = []
    for each in (model, twin):
        torch.manual_seed(1)
        results.append(
            (each(tokens), torch.get_rng_state(), {k: v.clone() for k, v in each.state_dict().items()})
        )
    (read, state, kept), (plain, plain_state, plain_kept) = results
    assert torch.equal(read, plain)
    assert torch.equal(state, plain_state)
    assert all(torch.equal(kept[key], plain_kept[key]) for key in plain_kept)
    assert [module.training for module in model] == [True, True, False, True, True]


def said_by(make):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the text is what is tested
        make()
    text = str(error.value)
    assert "\n" not in text
    return text


def test_mistakes_are_told_in_one_line():
    vit, causal = made("timm-vit"), CausalReader()
    assert "cannot find the patch tokens of a CausalReader" in said_by(
        lambda: reorder.attach(causal, SHUFFLED)
    )
    assert 'at="blocks.0"' in said_by(lambda: reorder.attach(causal, SHUFFLED))
    assert "no module 'encoder'; it has embed, recurrent, head" in said_by(
        lambda: reorder.attach(causal, SHUFFLED, at="encoder")
    )
    other = reorder.OrderLearner((2, 8), total_steps=9)
    assert "for a 2x8 grid, but a 4x4 grid" in said_by(lambda: reorder.attach(vit, other))
    assert "(49,) cannot read a grid of 4x4" in said_by(lambda: reorder.attach(vit, torch.arange(49)))
    assert "two integers, got 14" in said_by(lambda: reorder.attach(vit, "row", grid=14))
    assert "needs a grid" in said_by(lambda: reorder.attach(causal, "row", at="recurrent"))
    assert "cannot tell after which module" in said_by(
        lambda: reorder.attach(nn.Sequential(made("hf-siglip").vision_model), SHUFFLED, restore=True)
    )
    handle = reorder.attach(vit, SHUFFLED)
    assert "attached to patch_drop already" in said_by(lambda: reorder.attach(vit, SHUFFLED))
    handle.remove()
    reorder.attach(vit, torch.arange(49), grid=(7, 7))
    assert "17 tokens reach patch_drop, of which 1 are no patches, but the order is of 49" in said_by(
        lambda: vit(IMAGES)
    )
    reorder.attach(causal, SHUFFLED, at="recurrent")  # without its prefix
    assert "give another prefix=" in said_by(lambda: causal(IMAGES))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(768, 2))
    reorder.attach(flat, SHUFFLED, at="1")
    assert "a tensor (3, 768) reaches 1, and not tokens (B, L, D)" in said_by(lambda: flat(IMAGES))
    two = nn.ModuleList([made("timm-vit"), made("hf-vit")])
    assert "has patch tokens in 0.patch_drop, 1.vit.embeddings" in said_by(
        lambda: reorder.attach(two, SHUFFLED)
    )


def test_patch_dropout_that_shuffles_is_refused_and_ordered_dropout_keeps_the_order():
    assert "patch_drop.ordered = True" in said_by(
        lambda: reorder.attach(TimmVit(patch_drop=0.5, ordered=False), SHUFFLED)
    )
    torch.manual_seed(0)
    model = TimmVit(patch_drop=0.5, ordered=True).train()
    got = []
    model.blocks[0].register_forward_pre_hook(lambda module, inputs: got.append(inputs[0]))
    reorder.attach(model, SHUFFLED)
    model(IMAGES)
    tokens = model._pos_embed(model.patch_embed(IMAGES))[:, 1:][:, SHUFFLED]
    for image, kept in zip(tokens, got[-1][:, 1:], strict=True):
        slots = [int((image == token).all(-1).nonzero()) for token in kept]
        assert len(slots) == 8
        assert slots == sorted(slots)


def test_rotary_positions_follow_patches_that_eva_drops_and_reads():
    """With half the patches dropped, every token that is left is turned by its own patch's angle."""
    torch.manual_seed(0)
    model = TimmEva(patch_drop=0.5).train()
    reorder.attach(model, SHUFFLED)
    seen = []
    model.blocks[0].register_forward_pre_hook(
        lambda module, inputs, named: seen.append((inputs[0], named["rope"])), with_kwargs=True
    )
    model(IMAGES)
    tokens, rope = seen[-1]
    plain = torch.cat([model.cls_token.expand(3, -1, -1), model.patch_embed(IMAGES)], 1) + model.pos_embed
    for image in range(3):
        for token, turned in zip(tokens[image, 1:], rope[image, 0], strict=True):
            patch = int((plain[image, 1:] == token).all(-1).nonzero())
            assert torch.equal(turned, model.rope.get_embed()[patch])


def test_never_advancing_is_said():
    model = nn.Sequential(nn.Identity(), nn.Identity())
    reorder.attach(model, learner_of(), at="1")
    tokens = torch.randn(2, 16, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(99):
            model(tokens)
    with pytest.warns(UserWarning, match=r"100 batches were read at step 0: call handle.step\(\)"):
        model(tokens)


def test_timms_own_models_where_timm_imports():
    try:
        timm = pytest.importorskip("timm")
    except Exception as error:  # it needs torchvision, which may be broken
        pytest.skip(f"timm does not import: {error}")
    for name in ("vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "eva02_tiny_patch14_224"):
        model = timm.create_model(name, num_classes=5).eval()
        images = torch.randn(2, 3, 224, 224)
        before = model(images)
        patches = model.patch_embed.num_patches
        handle = reorder.attach(model, torch.randperm(patches))
        assert torch.allclose(model(images), before, atol=1e-4)
        handle.remove()
        assert torch.equal(model(images), before)
