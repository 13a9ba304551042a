"""Attention in a band for GPUs in Triton: sliding windows, and segments with a memory and relative distances.

Slot i sees the slots from the start of its segment minus `memory` up to i + `ahead`; in a sliding window a
segment is one slot. Its score for slot j is content_i . key_j, plus position_i . r_{i-j} if there are
distances r. Slot 0 may be a global key, whose scores come from outside and are the first of the softmax.

As in FlashAttention (Dao et al. 2022) no score leaves the chip: forward keeps the logarithm of the softmax's
sum, backward computes the scores again. Scores by distance are products of queries and a block's distances,
in which row i starts one column earlier: `_skew` gathers them. What dropout keeps is drawn again in backward,
from a seed and the place of a weight. No sum is atomic.
"""
# mypy: disable-error-code="no-untyped-def"
# B images, H heads, L slots, Q queries, d width of a head; c slots of a block; tensors are (B, L, H, d)

import triton
import triton.language as tl


@triton.jit
def _load(pointer, row, rows, image, head, heads, width, KIND: tl.constexpr, DEPTH: tl.constexpr):
    """Rows (n, d) of one head of (B, rows, H, d), zero outside."""
    depth = tl.arange(0, DEPTH)
    at = ((image.to(tl.int64) * rows + row) * heads + head)[:, None] * width + depth
    return tl.load(pointer + at, ((row >= 0) & (row < rows))[:, None] & (depth < width), 0.0).to(KIND)


@triton.jit
def _store(pointer, tile, row, rows, image, head, heads, width, DEPTH: tl.constexpr):
    depth = tl.arange(0, DEPTH)
    at = ((image.to(tl.int64) * rows + row) * heads + head)[:, None] * width + depth
    tl.store(pointer + at, tile, ((row >= 0) & (row < rows))[:, None] & (depth < width))


@triton.jit
def _table(distances, distance, length, head, width, KIND: tl.constexpr, DEPTH: tl.constexpr):
    """Rows of (H, L, d), zero outside."""
    return _load(distances, distance, length, head, 0, 1, width, KIND, DEPTH)


@triton.jit
def _dot(left, right):
    return tl.dot(left, right, input_precision="ieee")


@triton.jit
def _seen(query, key, length, first, segment, memory, ahead):
    """Whether queries (c, 1) see keys (1, c) or (c, c)."""
    low = tl.maximum((query - first) // segment * segment + first - memory, first)
    return (key >= low) & (key <= query + ahead) & (key < length) & (query < length)


@triton.jit
def _kept(seed, dropout, at, slot, length):
    """What dropout multiplies the weights (c, c) of rows `at` for slots by: 0 or 1 / (1 - dropout)."""
    drawn = tl.rand(seed, at[:, None] * length + slot[None, :])
    return tl.where(drawn >= dropout, 1.0 / (1.0 - dropout), 0.0)


@triton.jit
def _skew(wide, SLOTS: tl.constexpr):
    """(c, 2 c) -> (c, c): column w of row r is found in column r - w + c - 1."""
    slot = tl.arange(0, SLOTS)
    return tl.gather(wide, slot[:, None] - slot[None, :] + SLOTS - 1, 1)


@triton.jit
def _skew_back(narrow, SLOTS: tl.constexpr):
    """The adjoint of `_skew`: (c, c) -> (c, 2 c), zero where nothing was read."""
    column = tl.arange(0, SLOTS)[:, None] + SLOTS - 1 - tl.arange(0, 2 * SLOTS)[None, :]
    inside = (column >= 0) & (column < SLOTS)
    return tl.where(inside, tl.gather(narrow, tl.where(inside, column, 0), 1), 0.0)


@triton.jit
def _scores(
    content, position, key_tile, distances, start, begin, length, head, width,
    RELATIVE: tl.constexpr, KIND: tl.constexpr, SLOTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Scores (c, c) of queries from slot `start` on for keys from slot `begin` on."""
    scores = _dot(content, tl.trans(key_tile))
    if RELATIVE:
        distance = start - begin - (SLOTS - 1) + tl.arange(0, 2 * SLOTS)
        table = _table(distances, distance, length, head, width, KIND, DEPTH)
        scores += _skew(_dot(position, tl.trans(table)), SLOTS)
    return scores


@triton.jit(do_not_specialize=["seed"])
def forward_kernel(
    content, position, key, value, distances, to_global, global_kept, out, log_sum,
    queries, length, first_query, first, segment, memory, ahead, heads, width, seed, dropout,
    RELATIVE: tl.constexpr, DROPS: tl.constexpr, KIND: tl.constexpr, SLOTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    head, image = tl.program_id(1), tl.program_id(2)
    row = tl.program_id(0) * SLOTS + tl.arange(0, SLOTS)
    start, query = tl.program_id(0) * SLOTS + first_query, row + first_query
    q = _load(content, row, queries, image, head, heads, width, KIND, DEPTH)
    p = _load(position, row, queries, image, head, heads, width, KIND, DEPTH) if RELATIVE else q
    at = (image.to(tl.int64) * heads + head) * queries + row
    if to_global is not None:
        largest, total = tl.load(to_global + at, row < queries, 0.0), tl.full((SLOTS,), 1.0, tl.float32)
        nowhere = tl.zeros((SLOTS,), tl.int32)
        read = _load(value, nowhere, length, image, head, heads, width, tl.float32, DEPTH)
        if DROPS:
            read *= tl.load(global_kept + at, row < queries, 0.0)[:, None]
    else:
        largest, total = tl.full((SLOTS,), -1e30, tl.float32), tl.zeros((SLOTS,), tl.float32)
        read = tl.zeros((SLOTS, DEPTH), tl.float32)
    low = tl.maximum((start - first) // segment * segment + first - memory, first)
    for begin in range(low, tl.minimum(start + SLOTS + ahead, length), SLOTS):
        slot = begin + tl.arange(0, SLOTS)
        k = _load(key, slot, length, image, head, heads, width, KIND, DEPTH)
        scores = _scores(q, p, k, distances, start, begin, length, head, width, RELATIVE, KIND, SLOTS, DEPTH)
        seen = _seen(query[:, None], slot[None, :], length, first, segment, memory, ahead)
        scores = tl.where(seen, scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        weight, keep = tl.exp(scores - now[:, None]), tl.exp(largest - now)
        v = _load(value, slot, length, image, head, heads, width, KIND, DEPTH)
        total = total * keep + tl.sum(weight, 1)
        if DROPS:
            weight *= _kept(seed, dropout, at, slot, length)
        read = read * keep[:, None] + _dot(weight.to(KIND), v)
        largest = now
    total = tl.where(row < queries, total, 1.0)
    _store(out, read / total[:, None], row, queries, image, head, heads, width, DEPTH)
    tl.store(log_sum + at, largest + tl.log(total), row < queries)


@triton.jit(do_not_specialize=["seed"])
def query_kernel(
    grad, content, position, key, value, distances, log_sum, inner, dcontent, dposition,
    queries, length, first_query, first, segment, memory, ahead, heads, width, seed, dropout,
    RELATIVE: tl.constexpr, DROPS: tl.constexpr, KIND: tl.constexpr, SLOTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The gradients of content and position; `inner` (B, H, Q) is the output times its gradient."""
    head, image = tl.program_id(1), tl.program_id(2)
    row = tl.program_id(0) * SLOTS + tl.arange(0, SLOTS)
    start, query = tl.program_id(0) * SLOTS + first_query, row + first_query
    q = _load(content, row, queries, image, head, heads, width, KIND, DEPTH)
    p = _load(position, row, queries, image, head, heads, width, KIND, DEPTH) if RELATIVE else q
    given = _load(grad, row, queries, image, head, heads, width, KIND, DEPTH)
    at = (image.to(tl.int64) * heads + head) * queries + row
    log, mean = tl.load(log_sum + at, row < queries, 0.0), tl.load(inner + at, row < queries, 0.0)
    dq, dp = tl.zeros((SLOTS, DEPTH), tl.float32), tl.zeros((SLOTS, DEPTH), tl.float32)
    low = tl.maximum((start - first) // segment * segment + first - memory, first)
    for begin in range(low, tl.minimum(start + SLOTS + ahead, length), SLOTS):
        slot = begin + tl.arange(0, SLOTS)
        k = _load(key, slot, length, image, head, heads, width, KIND, DEPTH)
        scores = _scores(q, p, k, distances, start, begin, length, head, width, RELATIVE, KIND, SLOTS, DEPTH)
        seen = _seen(query[:, None], slot[None, :], length, first, segment, memory, ahead)
        weight = tl.where(seen, tl.exp(scores - log[:, None]), 0.0)
        v = _load(value, slot, length, image, head, heads, width, KIND, DEPTH)
        dweight = _dot(given, tl.trans(v))
        if DROPS:
            dweight *= _kept(seed, dropout, at, slot, length)
        dscores = weight * (dweight - mean[:, None])
        dq += _dot(dscores.to(KIND), k)
        if RELATIVE:
            distance = start - begin - (SLOTS - 1) + tl.arange(0, 2 * SLOTS)
            table = _table(distances, distance, length, head, width, KIND, DEPTH)
            dp += _dot(_skew_back(dscores, SLOTS).to(KIND), table)
    _store(dcontent, dq, row, queries, image, head, heads, width, DEPTH)
    if RELATIVE:
        _store(dposition, dp, row, queries, image, head, heads, width, DEPTH)


@triton.jit(do_not_specialize=["seed"])
def key_kernel(
    grad, content, position, key, value, distances, log_sum, inner, dkey, dvalue, dkey_before, dvalue_before,
    queries, length, first_query, first, segment, memory, ahead, heads, width, seed, dropout,
    RELATIVE: tl.constexpr, DROPS: tl.constexpr, KIND: tl.constexpr, SLOTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The gradients of keys and values: with `dkey_before`, those from later segments are apart."""
    head, image = tl.program_id(1), tl.program_id(2)
    begin = tl.program_id(0) * SLOTS + first
    slot = begin + tl.arange(0, SLOTS)
    k = _load(key, slot, length, image, head, heads, width, KIND, DEPTH)
    v = _load(value, slot, length, image, head, heads, width, KIND, DEPTH)
    dk, dv = tl.zeros((SLOTS, DEPTH), tl.float32), tl.zeros((SLOTS, DEPTH), tl.float32)
    dk_before, dv_before = tl.zeros((SLOTS, DEPTH), tl.float32), tl.zeros((SLOTS, DEPTH), tl.float32)
    last = tl.minimum(begin + SLOTS, length) - 1
    high = ((last - first + memory) // segment + 1) * segment + first
    for start in range(tl.maximum(begin - ahead, first_query), tl.minimum(high, length), SLOTS):
        query = start + tl.arange(0, SLOTS)
        row = query - first_query
        q = _load(content, row, queries, image, head, heads, width, KIND, DEPTH)
        p = _load(position, row, queries, image, head, heads, width, KIND, DEPTH) if RELATIVE else q
        given = _load(grad, row, queries, image, head, heads, width, KIND, DEPTH)
        at = (image.to(tl.int64) * heads + head) * queries + row
        log, mean = tl.load(log_sum + at, row < queries, 0.0), tl.load(inner + at, row < queries, 0.0)
        scores = _scores(q, p, k, distances, start, begin, length, head, width, RELATIVE, KIND, SLOTS, DEPTH)
        seen = _seen(query[:, None], slot[None, :], length, first, segment, memory, ahead)
        weight = tl.where(seen, tl.exp(scores - log[:, None]), 0.0)
        dweight, read = _dot(given, tl.trans(v)), weight
        if DROPS:
            kept = _kept(seed, dropout, at, slot, length)
            dweight, read = dweight * kept, weight * kept
        dscores = weight * (dweight - mean[:, None])
        if dkey_before is not None:
            own = ((query - first) // segment)[:, None] == ((slot - first) // segment)[None, :]
            dv_before += _dot(tl.trans(tl.where(own, 0.0, read).to(KIND)), given)
            dk_before += _dot(tl.trans(tl.where(own, 0.0, dscores).to(KIND)), q)
            read, dscores = tl.where(own, read, 0.0), tl.where(own, dscores, 0.0)
        dv += _dot(tl.trans(read.to(KIND)), given)
        dk += _dot(tl.trans(dscores.to(KIND)), q)
    _store(dkey, dk, slot, length, image, head, heads, width, DEPTH)
    _store(dvalue, dv, slot, length, image, head, heads, width, DEPTH)
    if dkey_before is not None:
        _store(dkey_before, dk_before, slot, length, image, head, heads, width, DEPTH)
        _store(dvalue_before, dv_before, slot, length, image, head, heads, width, DEPTH)


@triton.jit
def distance_kernel(
    grad, content, position, key, value, distances, log_sum, inner, ddistances, reach, parts, blocks,
    queries, length, first_query, first, segment, memory, ahead, heads, width,
    KIND: tl.constexpr, SLOTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Parts (P, reach, H, d) of the gradient of distances: one for `blocks` blocks of an image's queries."""
    head, image, part = tl.program_id(1), tl.program_id(2) // parts, tl.program_id(2) % parts
    nearest = tl.program_id(0) * SLOTS
    distance = nearest + tl.arange(0, SLOTS)
    table = _table(distances, distance, length, head, width, KIND, DEPTH)
    total = tl.zeros((SLOTS, DEPTH), tl.float32)
    for block in range(part * blocks, tl.minimum((part + 1) * blocks, tl.cdiv(queries, SLOTS))):
        row = block * SLOTS + tl.arange(0, SLOTS)
        query = row + first_query
        q = _load(content, row, queries, image, head, heads, width, KIND, DEPTH)
        p = _load(position, row, queries, image, head, heads, width, KIND, DEPTH)
        given = _load(grad, row, queries, image, head, heads, width, KIND, DEPTH)
        at = (image.to(tl.int64) * heads + head) * queries + row
        log, mean = tl.load(log_sum + at, row < queries, 0.0), tl.load(inner + at, row < queries, 0.0)
        # here column w of row r is distance w: of key r - w, among those from the block's farthest on
        slot = block * SLOTS + first_query - nearest - (SLOTS - 1) + tl.arange(0, 2 * SLOTS)
        k = _load(key, slot, length, image, head, heads, width, KIND, DEPTH)
        v = _load(value, slot, length, image, head, heads, width, KIND, DEPTH)
        scores = _skew(_dot(q, tl.trans(k)), SLOTS) + _dot(p, tl.trans(table))
        away = query[:, None] - distance[None, :]
        seen = _seen(query[:, None], away, length, first, segment, memory, ahead) & (distance >= 0)[None, :]
        weight = tl.where(seen, tl.exp(scores - log[:, None]), 0.0)
        dscores = weight * (_skew(_dot(given, tl.trans(v)), SLOTS) - mean[:, None])
        total += _dot(tl.trans(dscores.to(KIND)), p)
    _store(ddistances, total, distance, reach, tl.program_id(2), head, heads, width, DEPTH)
