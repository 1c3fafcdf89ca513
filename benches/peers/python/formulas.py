"""Every row's formula once, over what a library calls its functions.

A library says which they are (`relu`, `gelu`, `softmax`, …), one call where it has one, and overrides what its users
write otherwise. What stands here works for arrays with operators and slices.
"""

import math


class Formulas:
    def __init__(self, **functions):
        """`functions` are the library's own, by the names they have here."""
        self.__dict__.update(functions)

    def transpose(self, x):
        return x.T

    def stored(self, x):
        """The same with its elements in order; where arrays have no strides, they are."""
        return x

    def linear(self, x, weight, bias):
        return x @ weight + bias

    def split_heads(self, x, n_heads):
        return x.reshape(*x.shape[:2], n_heads, -1).swapaxes(1, 2)

    def merge_heads(self, x):
        swapped = x.swapaxes(1, 2)
        return swapped.reshape(*swapped.shape[:2], -1)

    def swap_last(self, x):
        return x.swapaxes(-1, -2)

    def rms_norm(self, x, weight):
        return x * self.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight

    def sum(self, x, axis, keep=False):
        return x.sum(axis, keepdims=keep)

    def mean_and_variance(self, x):
        return x.mean(1), x.var(1)

    def argmin(self, x):
        return x.argmin(1)

    def ten_ops(self, a, b, c, d):
        t = self.sigmoid(self.relu((a * b + c - d) * 0.5))
        return self.tanh(t * a + b) * c

    def relu_of_fma(self, a, b, c):
        return self.relu(a * b + c)

    def bias_gelu(self, x, bias):
        return self.gelu(x + bias)

    def softmax_rows(self, x):
        return self.softmax(x)

    def norm_rows(self, x, weight, bias):
        return self.layer_norm(x, weight, bias)

    def gated_norm(self, x, gate, weight):
        return self.rms_norm(x, weight) * self.silu(gate)

    def residual_norm(self, x, bias, residual, weight, shift):
        return self.layer_norm(residual + (x + bias), weight, shift)

    def sum_rows(self, x):
        return self.sum(x, 0)

    def sum_columns(self, x):
        return self.sum(x, 1)

    def sum_all(self, x):
        return self.sum(x, None)

    def outer(self, a, b):
        return self.stored(self.relu(self.transpose(a + b)))

    def transposed_fma(self, x, z):
        return self.transpose(x) * 2.0 + z

    def strided_fma(self, x, z):
        return x[:, ::2] * 2.0 + z

    def five_points(self, x):
        up, down, left, right = x[:-2, 1:-1], x[2:, 1:-1], x[1:-1, :-2], x[1:-1, 2:]
        return (x[1:-1, 1:-1] + up + down + left + right) * 0.2

    def linear_gelu(self, x, weight, bias):
        return self.gelu(self.linear(x, weight, bias))

    def perceptron(self, x, w1, b1, w2, b2):
        return self.linear(self.relu(self.linear(x, w1, b1)), w2, b2)

    def attention(self, q, k, v, mask, n_heads, head_size):
        q, k, v = (self.split_heads(x, n_heads) for x in (q, k, v))
        scores = q @ self.swap_last(k) * (1.0 / math.sqrt(head_size))
        if mask is not None:
            scores = scores + mask
        return self.merge_heads(self.softmax(scores) @ v)

    def one_head(self, q, k, v, mask):
        return self.attention(q, k, v, mask, 1, 512)

    def eight_heads(self, q, k, v, mask):
        return self.attention(q, k, v, mask, 8, 64)

    def encoder_layer(self, x, g1, c1, w_qkv, b_qkv, w_out, b_out, g2, c2, w_up, b_up, w_down, b_down):
        qkv = self.linear(self.layer_norm(x, g1, c1), w_qkv, b_qkv)
        q, k, v = qkv[:, :, :384], qkv[:, :, 384:768], qkv[:, :, 768:]
        x = x + self.linear(self.attention(q, k, v, None, 12, 32), w_out, b_out)
        hidden = self.gelu(self.linear(self.layer_norm(x, g2, c2), w_up, b_up))
        return x + self.linear(hidden, w_down, b_down)

    def black_scholes(self, spot, strike, time):
        rate, sigma = 0.02, 0.3
        spread = self.sqrt(time) * sigma
        d1 = (self.log(spot / strike) + time * (rate + 0.5 * sigma * sigma)) / spread
        d2 = d1 - spread
        below1, below2 = ((self.erf(d * math.sqrt(0.5)) + 1.0) * 0.5 for d in (d1, d2))
        discounted = strike * self.exp(time * -rate)
        call = spot * below1 - discounted * below2
        return call, call - spot + discounted

    def nearest(self, points, centres):
        squares = self.sum(points * points, 1, keep=True)
        products = points @ self.transpose(centres) * 2.0
        return self.argmin(squares - products + self.sum(centres * centres, 1))

    def inverse_distances(self, points):
        offsets = points[:, None, :] - points[None, :, :]
        return self.sum(self.rsqrt(self.sum(offsets * offsets, 2) + 1e-3), 1)

    def copy(self, x):
        return x.copy()

    def products(self, x, w):
        for _ in range(100):
            x = x @ w
        return x

    def sum_of_two(self, a, b):
        return a + b

    def many_ops(self, x, y):
        t = x
        for k in range(0, 200, 5):
            t = self.minimum(t * (0.9 + 0.001 * k) + y, 0.95)
            t = self.maximum(t - x, -0.9)
        return t
