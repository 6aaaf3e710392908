"""The programs that a GPU runs for the layers in `kernels`, written in Triton.

A program treats one row: one channel of one client, with the values of all its images. It reads and writes a row in
blocks of `BLOCK` values. Triton compiles a program anew for each combination of the arguments in capital letters.
Triton does not allow other annotations than `constexpr`.

If Triton knows that arrays are aligned, each thread treats four values that follow each other. The threads then
read every fourth value of a window at a time, which is slow. So the depthwise convolutions hide the alignment,
and neighbouring threads read neighbouring values.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def norm_forward(
    x,
    y,
    weight,
    bias,
    shift,
    moments,
    running_mean,
    running_var,
    rows,
    size,
    momentum,
    eps,
    SHIFTED: tl.constexpr,
    RELU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Normalise a row, and change its running mean and variance."""
    row = tl.program_id(0).to(tl.int64)
    start, places = row * size, tl.arange(0, BLOCK)
    pivot = tl.load(x + start)  # the sums of differences from any value of the row lose fewer digits
    total, squares = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for first in range(0, size, BLOCK):
        valid = first + places < size
        values = tl.load(x + start + first + places, valid, 0.0)
        differences = tl.where(valid, values - pivot, 0.0)
        total += differences
        squares += differences * differences
    offset = tl.sum(total, 0) / size
    variance = tl.maximum(tl.sum(squares, 0) / size - offset * offset, 0.0)
    mean, scale = pivot + offset, 1 / tl.sqrt(variance + eps)
    tl.store(moments + row, mean)
    tl.store(moments + rows + row, scale)
    true_mean = mean
    if SHIFTED:
        true_mean = mean + tl.load(shift + row)
    unbiased = variance * (size / tl.maximum(size - 1, 1))
    old_mean, old_var = tl.load(running_mean + row), tl.load(running_var + row)
    tl.store(running_mean + row, (1 - momentum) * old_mean + momentum * true_mean)
    tl.store(running_var + row, (1 - momentum) * old_var + momentum * unbiased)
    w, b = tl.load(weight + row), tl.load(bias + row)
    for first in range(0, size, BLOCK):
        valid = first + places < size
        values = tl.load(x + start + first + places, valid, 0.0)
        normalised = (values - mean) * scale * w + b
        if RELU:
            normalised = tl.maximum(normalised, 0.0)
        tl.store(y + start + first + places, normalised, valid)


@triton.jit
def norm_backward(
    gradient,
    x,
    dx,
    weight,
    bias,
    shift,
    moments,
    sums,
    rows,
    size,
    SHIFTED: tl.constexpr,
    RELU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the gradients of `norm_forward`: of the row (`dx`), the weight, the bias and the shift (`sums`)."""
    row = tl.program_id(0).to(tl.int64)
    start, places = row * size, tl.arange(0, BLOCK)
    mean, scale = tl.load(moments + row), tl.load(moments + rows + row)
    w, b = tl.load(weight + row), tl.load(bias + row)
    by_weight, by_bias = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for first in range(0, size, BLOCK):
        valid = first + places < size
        at = start + first + places
        normalised = (tl.load(x + at, valid, 0.0) - mean) * scale
        g = tl.load(gradient + at, valid, 0.0)
        if RELU:
            g = tl.where(normalised * w + b > 0, g, 0.0)
        by_weight += g * normalised
        by_bias += g
    dw, db = tl.sum(by_weight, 0), tl.sum(by_bias, 0)
    tl.store(sums + row, dw)
    tl.store(sums + rows + row, db)
    by_shift = tl.zeros([BLOCK], tl.float32)
    for first in range(0, size, BLOCK):
        valid = first + places < size
        at = start + first + places
        normalised = (tl.load(x + at, valid, 0.0) - mean) * scale
        g = tl.load(gradient + at, valid, 0.0)
        if RELU:
            g = tl.where(normalised * w + b > 0, g, 0.0)
        result = (g - db / size - normalised * (dw / size)) * (scale * w)
        tl.store(dx + at, result, valid)
        if SHIFTED:
            by_shift += tl.where(valid, result, 0.0)
    if SHIFTED:
        tl.store(sums + 2 * rows + row, tl.sum(by_shift, 0))


@triton.jit
def scale_and_shift(
    x,
    y,
    scale,
    shift,
    size,
    RELU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Multiply a block of a row by a number, and add another number."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = places < size
    values = tl.load(x + row * size + places, valid, 0.0) * tl.load(scale + row) + tl.load(shift + row)
    if RELU:
        values = tl.maximum(values, 0.0)
    tl.store(y + row * size + places, values, valid)


@triton.jit(do_not_specialize_on_alignment=("x", "y"))
def depthwise_forward(
    x,
    weight,
    y,
    batch,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute a block of outputs of a 3 x 3 convolution of a row with its own window."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    size = batch * (OUT_HEIGHT * OUT_WIDTH)
    valid = place < size
    image = place // (OUT_HEIGHT * OUT_WIDTH)
    top = place // OUT_WIDTH % OUT_HEIGHT * STRIDE - PADDING
    left = place % OUT_WIDTH * STRIDE - PADDING
    images = x + row * batch * (HEIGHT * WIDTH)
    total = tl.zeros([BLOCK], tl.float32)
    for k in tl.static_range(9):
        h, v = (top + k // 3).to(tl.uint32), (left + k % 3).to(tl.uint32)  # negative numbers become large ones
        inside = valid & (h < HEIGHT) & (v < WIDTH)
        value = tl.load(images + (image * HEIGHT + h) * WIDTH + v, inside, 0.0)
        total += value * tl.load(weight + row * 9 + k)
    tl.store(y + row * size + place, total, valid)


@triton.jit
def output(gradient, image, h, v, valid, STRIDE, HEIGHT, WIDTH):
    """Return the gradients of the outputs whose windows begin at row h and column v. It is 0 if there is none."""
    h, v = h.to(tl.uint32), v.to(tl.uint32)  # negative numbers become large ones
    inside = valid & (h % STRIDE == 0) & (h // STRIDE < HEIGHT) & (v % STRIDE == 0) & (v // STRIDE < WIDTH)
    return tl.load(gradient + (image * HEIGHT + h // STRIDE) * WIDTH + v // STRIDE, inside, 0.0)


@triton.jit(do_not_specialize_on_alignment=("gradient", "x", "dx"))
def depthwise_backward(
    gradient,
    x,
    weight,
    dx,
    dw,
    batch,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the gradients of `depthwise_forward`: of the row (`dx`), and of its window (`dw`)."""
    row = tl.program_id(0).to(tl.int64)
    size = batch * (HEIGHT * WIDTH)
    gradient += row * batch * (OUT_HEIGHT * OUT_WIDTH)
    x += row * size
    dx += row * size
    weight += row * 9
    dw += row * 9
    w0, w1, w2 = tl.load(weight), tl.load(weight + 1), tl.load(weight + 2)
    w3, w4, w5 = tl.load(weight + 3), tl.load(weight + 4), tl.load(weight + 5)
    w6, w7, w8 = tl.load(weight + 6), tl.load(weight + 7), tl.load(weight + 8)
    zero = tl.zeros([BLOCK], tl.float32)
    sum0, sum1, sum2, sum3, sum4, sum5, sum6, sum7, sum8 = zero, zero, zero, zero, zero, zero, zero, zero, zero
    for first in range(0, size, BLOCK):
        place = first + tl.arange(0, BLOCK)
        valid = place < size
        image = place // (HEIGHT * WIDTH)
        h = place // WIDTH % HEIGHT + PADDING
        v = place % WIDTH + PADDING
        value = tl.load(x + place, valid, 0.0)
        g0 = output(gradient, image, h, v, valid, STRIDE, OUT_HEIGHT, OUT_WIDTH)
        g1 = output(gradient, image, h, v - 1, valid, STRIDE, OUT_HEIGHT, OUT_WIDTH)
        g2 = output(gradient, image, h, v - 2, valid, STRIDE, OUT_HEIGHT, OUT_WIDTH)
        g3 = output(gradient, image, h - 1, v, valid, STRIDE, OUT_HEIGHT, OUT_WIDTH)
        g4 = output(gradient, image, h - 1, v - 1, valid, STRIDE, OUT_HEIGHT, OUT_WIDTH)
        g5 = output(gradient, image, h - 1, v - 2, valid, STRIDE, OUT_HEIGHT, OUT_WIDTH)
        g6 = output(gradient, image, h - 2, v, valid, STRIDE, OUT_HEIGHT, OUT_WIDTH)
        g7 = output(gradient, image, h - 2, v - 1, valid, STRIDE, OUT_HEIGHT, OUT_WIDTH)
        g8 = output(gradient, image, h - 2, v - 2, valid, STRIDE, OUT_HEIGHT, OUT_WIDTH)
        total = g0 * w0 + g1 * w1 + g2 * w2 + g3 * w3 + g4 * w4 + g5 * w5 + g6 * w6 + g7 * w7 + g8 * w8
        tl.store(dx + place, total, valid)
        sum0 += g0 * value
        sum1 += g1 * value
        sum2 += g2 * value
        sum3 += g3 * value
        sum4 += g4 * value
        sum5 += g5 * value
        sum6 += g6 * value
        sum7 += g7 * value
        sum8 += g8 * value
    tl.store(dw, tl.sum(sum0, 0))
    tl.store(dw + 1, tl.sum(sum1, 0))
    tl.store(dw + 2, tl.sum(sum2, 0))
    tl.store(dw + 3, tl.sum(sum3, 0))
    tl.store(dw + 4, tl.sum(sum4, 0))
    tl.store(dw + 5, tl.sum(sum5, 0))
    tl.store(dw + 6, tl.sum(sum6, 0))
    tl.store(dw + 7, tl.sum(sum7, 0))
    tl.store(dw + 8, tl.sum(sum8, 0))
