"""What the kernels of this folder compute, in float64."""

import numpy as np


def softmax(x, **_sizes):
    """Softmax over the last axis."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def layer_norm(x, weight, bias, epsilon, **_sizes):
    """Each row less its mean, over its deviation."""
    mean = x.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + epsilon)
    out = (x - mean) * rstd * weight + bias
    return {"out": out, "mean": mean[:, 0], "rstd": rstd[:, 0]}


def transpose(**given):
    """``in`` [height, width] as [width, height]."""
    return given["in"].T


def matmul(a, b, **_sizes):
    """``a`` [m, k] times ``b`` [k, n]."""
    return a @ b


def convolution(image, weights, height, width):
    """5 x 5 weights over the image, whose edge is repeated outside."""
    wide = np.pad(image, 2, mode="edge")
    return sum(
        weights[y, x] * wide[y : y + height, x : x + width] for y in range(5) for x in range(5)
    )


def histogram(pixels, **_sizes):
    """How often each byte occurs."""
    return np.bincount(pixels, minlength=256).astype(np.int32)


def dot(x, y, **_sizes):
    """The dot product, as an array of one."""
    return np.array([x @ y])


def prefix_sum(x, **_sizes):
    """Inclusive sums."""
    return np.cumsum(x)


def n_body(bodies, softening, **_sizes):
    """Accelerations [n, 3] of bodies (x, y, z, mass)."""
    places, masses = bodies[:, :3], bodies[:, 3]
    out = np.empty_like(places)
    for number, place in enumerate(places):
        apart = places - place
        out[number] = masses / ((apart**2).sum(axis=1) + softening) ** 1.5 @ apart
    return out


def sparse_product(begins, columns, values, x, rows):
    """A matrix in compressed rows times ``x``."""
    sums = np.concatenate([[0.0], np.cumsum(values * x[columns])])
    return sums[begins[1:]] - sums[begins[:-1]]


def sorted_rows(keys, **_sizes):
    """Each row in ascending order."""
    return np.sort(keys, axis=-1)


def _normal(d):
    k = 1 / (1 + 0.2316419 * np.abs(d))
    poly = k * (
        0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429)))
    )
    tail = np.exp(-0.5 * d * d) / np.sqrt(2 * np.pi) * poly
    return np.where(d > 0, 1 - tail, tail)


def black_scholes(price, strike, years, rate, volatility, **_sizes):
    """Prices of European calls and puts."""
    root = volatility * np.sqrt(years)
    d1 = (np.log(price / strike) + (rate + 0.5 * volatility**2) * years) / root
    d2 = d1 - root
    discounted = strike * np.exp(-rate * years)
    call = price * _normal(d1) - discounted * _normal(d2)
    put = discounted * (1 - _normal(d2)) - price * (1 - _normal(d1))
    return {"call": call, "put": put}


def embedding(tokens, table, positions, count, length, **_sizes):
    """Rows of the table, each with the row of its position added."""
    return table[tokens] + positions[np.arange(count) % length]


def rotary(query, positions, cosines, sines, pairs, **_sizes):
    """Each pair (k, k + pairs) of a head rotated."""
    cosine, sine = cosines[positions][:, None, :], sines[positions][:, None, :]
    x, y = query[..., :pairs], query[..., pairs:]
    return {"query": np.concatenate([x * cosine - y * sine, y * cosine + x * sine], axis=-1)}


def argmax(x, **_sizes):
    """Where each row's maximum is first, and the maximum."""
    return {"place": x.argmax(axis=-1).astype(np.int32), "value": x.max(axis=-1)}


def dequantise(packed, scales, zeros, groups):
    """Four-bit numbers less their zero, times their scale."""
    numbers = np.empty((groups, 32))
    numbers[:, 0::2] = packed & 15
    numbers[:, 1::2] = packed >> 4
    return scales[:, None] * (numbers - zeros[:, None])
