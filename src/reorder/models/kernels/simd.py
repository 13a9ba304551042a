"""Sixteen numbers at a time inside numba functions, whose own loops rarely become good vector code.

`Lanes` is LLVM's `<16 x float>` or `<16 x double>`. LLVM splits it into the registers the processor has (one
with AVX-512, two with AVX2, four with NEON), so nothing here depends on the processor.
"""
# mypy: disable-error-code="no-untyped-def"

import math
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import PrimitiveModel
from numba.extending import intrinsic, overload, register_model

WIDTH = 16
# Multiply-adds may be fused; nothing may be reassociated, or exp2's rounding trick would be folded away.
FASTMATH = {"contract"}
INDEX = ir.IntType(32)


class Lanes(types.Type):
    """The numba type of 16 numbers of one dtype."""

    def __init__(self, dtype: Any):
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class LanesModel(PrimitiveModel):
    """Lanes live in LLVM vectors."""

    def __init__(self, manager: Any, lanes: Lanes):
        super().__init__(manager, lanes, _vector(lanes.dtype))


def _vector(dtype: Any) -> ir.VectorType:
    return ir.VectorType(ir.DoubleType() if dtype == types.float64 else ir.FloatType(), WIDTH)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Where the 16 numbers from flat `index` of a contiguous array begin."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _vector(array_type.dtype).as_pointer())


@intrinsic
def load(typing, array, index):
    """16 neighbours of a contiguous array, from flat index `index`."""

    def generate(context, builder, signature, arguments):
        address = _address(context, builder, signature.args[0], *arguments)
        return builder.load(address, align=array.dtype.bitwidth // 8)

    return Lanes(array.dtype)(array, types.intp), generate


@intrinsic
def store(typing, array, index, lanes):
    """Write 16 numbers to a contiguous array, from flat index `index`."""

    def generate(context, builder, signature, arguments):
        address = _address(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def splat(typing, number):
    """The same number in all lanes."""

    def generate(context, builder, signature, arguments):
        undefined = ir.Constant(_vector(number), ir.Undefined)
        first = builder.insert_element(undefined, arguments[0], ir.Constant(INDEX, 0))
        return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(INDEX, WIDTH), None))

    return Lanes(number)(number), generate


@intrinsic
def at_least(typing, lanes, low):
    """The larger of the two in every lane; NaN stays NaN."""

    def generate(context, builder, signature, arguments):
        value, bound = arguments
        return builder.select(builder.fcmp_ordered(">", bound, value), bound, value)

    return lanes(lanes, low), generate


@intrinsic
def add_exponent(typing, lanes, shifted):
    """lanes * 2**n, where the low bits of `shifted` hold the integer n (see exp2)."""
    bits, mantissa = (64, 52) if lanes.dtype == types.float64 else (32, 23)

    def generate(context, builder, signature, arguments):
        integers = ir.VectorType(ir.IntType(bits), WIDTH)
        number, exponent = (builder.bitcast(argument, integers) for argument in arguments)
        exponent = builder.shl(exponent, ir.Constant(integers, [mantissa] * WIDTH))
        return builder.bitcast(builder.add(number, exponent), _vector(lanes.dtype))

    return lanes(lanes, shifted), generate


@intrinsic
def total(typing, lanes):
    """The sum over the lanes, folded in halves."""

    def generate(context, builder, signature, arguments):
        value, width = arguments[0], WIDTH
        while width > 1:
            width //= 2
            undefined = ir.Constant(value.type, ir.Undefined)
            halves = [
                builder.shuffle_vector(
                    value,
                    undefined,
                    ir.Constant(ir.VectorType(INDEX, width), list(range(start, start + width))),
                )
                for start in (0, width)
            ]
            value = builder.fadd(*halves)
        return builder.extract_element(value, ir.Constant(INDEX, 0))

    return lanes.dtype(lanes), generate


def _arithmetic(operation: Callable, instruction: str) -> None:
    """Give Lanes the operator `operation`; a number on either side is taken for all lanes."""

    @intrinsic
    def combine(typing, one, other):
        def generate(context, builder, signature, arguments):
            return getattr(builder, instruction)(*arguments)

        return one(one, other), generate

    @overload(operation)
    def choose(one, other):
        if isinstance(one, Lanes) and isinstance(other, Lanes):
            return lambda one, other: combine(one, other)
        if isinstance(one, Lanes):
            kind = one.dtype
            return lambda one, other: combine(one, splat(kind(other)))
        if isinstance(other, Lanes):
            kind = other.dtype
            return lambda one, other: combine(splat(kind(one)), other)
        return None


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
_arithmetic(operator.truediv, "fdiv")

# 2**r for |r| <= 1/2. float32: the degree-6 polynomial of least relative error (2e-09) among those that are
# exactly 1 at 0, so that slow decays do not drift. float64: ln(2)**k / k!, with a remainder below 1e-17.
_POLYNOMIAL = (
    1.0,
    0.693147202855,
    0.240226479136,
    0.055503324711,
    0.00961843735781,
    0.00133988744224,
    0.00015353361891,
)
_SERIES = tuple(math.log(2.0) ** k / math.factorial(k) for k in range(14))
# Adding 1.5 * 2**(bits of the mantissa) rounds to an integer and leaves it in the low bits.
_ROUND32, _ROUND64 = 1.5 * 2**23, 1.5 * 2**52
LOG2_E = 1.4426950408889634


def exp2(power: Any) -> Any:
    """2**power in every lane for power < 127 (float64: 1023), never below the least normal number."""
    raise NotImplementedError("exp2 works inside numba functions only")


@overload(exp2)
def _exp2(power):
    kind = power.dtype

    def single(power):
        power = at_least(power, splat(kind(-126)))
        shifted = power + _ROUND32
        rest = power - (shifted - _ROUND32)
        # Estrin's scheme: Horner's is one long chain of dependent steps, and measurably slower.
        square = rest * rest
        low = (rest * _POLYNOMIAL[3] + _POLYNOMIAL[2]) * square + (rest * _POLYNOMIAL[1] + _POLYNOMIAL[0])
        high = square * _POLYNOMIAL[6] + (rest * _POLYNOMIAL[5] + _POLYNOMIAL[4])
        return add_exponent(high * (square * square) + low, shifted)

    def double(power):
        power = at_least(power, splat(kind(-1022)))
        shifted = power + _ROUND64
        rest = power - (shifted - _ROUND64)
        series = rest * _SERIES[13] + _SERIES[12]
        for k in range(11, -1, -1):
            series = series * rest + _SERIES[k]
        return add_exponent(series, shifted)

    return double if kind == types.float64 else single


def sigmoid(number: Any) -> Any:
    """1 / (1 + exp(-number)) in every lane, constant below -87; numba only."""
    raise NotImplementedError("sigmoid works inside numba functions only")


@overload(sigmoid)
def _sigmoid(number):
    kind = number.dtype

    def implementation(number):
        return 1.0 / (exp2(at_least(number, splat(kind(-87))) * -LOG2_E) + 1.0)

    return implementation
