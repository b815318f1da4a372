"""LFM2's mixtures of experts behind com.microsoft QMoE, for onnx_build.py: layers 0, 2, .. are convolutions, all but the first have
experts, in each form of codes that ONNX Runtime's CPU takes.

Biases of the router are far apart, so that rounding never chooses another expert; each layer has others, so that all are used.
"""
import numpy as np
from onnx import helper as h
from onnx import numpy_helper

from onnx_build import D, MS, Bundle

EXPERTS, TOP, WIDTH, TAPS = 4, 2, 32, 3


class Mixture(Bundle):
    def reference(self, folder):
        """ONNX Runtime's QMoE of 8 bits in blocks rounds what it multiplies with to 8 bits, a block at a time (its results are off by 1 %,
        and by nothing from a pass of numpy that does so). There it computes its MoE instead, with the same weights as floats."""
        bits, block, _ = self.o["moe"]
        if bits != 8 or not block:
            return super().reference(folder)
        nodes, inits = self.nodes, self.inits
        self.nodes = [self.as_floats(n) if n.op_type == "QMoE" else n for n in nodes]
        twin = self.model().SerializeToString()
        self.nodes, self.inits = nodes, inits
        return twin

    def as_floats(self, n):
        known = {t.name: numpy_helper.to_array(t) for t in self.inits}
        names = []
        for q, s, z in ((2, 3, 11), (5, 6, 12)):
            codes, scale = known[n.input[q]].astype(np.float32), known[n.input[s]]
            zero = known[n.input[z]].astype(np.float32) if len(n.input) > z else np.full(scale.shape, 128, np.float32)
            x = codes.reshape(*scale.shape, -1)
            names.append(f"{n.input[q]}.floats")
            self.inits = [*self.inits, numpy_helper.from_array(((x - zero[..., None]) * scale[..., None]).reshape(codes.shape), names[-1])]
        return h.make_node("MoE", [*n.input[:2], names[0], "", names[1]], list(n.output), name=n.name, domain=MS, k=TOP,
                           normalize_routing_weights=1, swiglu_fusion=1, activation_type="swiglu", activation_alpha=1.0, activation_beta=0.0)

    def states(self, i):
        return super().states(i) if i % 2 else [(f"past.{i}.conv", f"present.{i}.conv", [1, D, TAPS - 1])]

    def attention(self, p, i, x, tables, window):
        if i % 2:
            return super().attention(p, i, x, tables, window)
        self.op("Transpose", [self.linear(f"{p}.mix.in", x, 3 * D, D)], f"{p}.mix.turned", perm=[0, 2, 1])
        parts = [f"{p}.mix.{c}" for c in "bcx"]
        self.op("Split", [f"{p}.mix.turned", self.ints("thirds", D, D, D)], parts, axis=1)
        self.op("Mul", [parts[0], parts[2]], f"{p}.mix.gated")
        past, present, _ = self.states(i)[0]
        taps = self.init(f"{p}.mix.taps", self.random(D, 1, TAPS))
        self.op("CausalConvWithState", [f"{p}.mix.gated", taps, "", past], [f"{p}.mix.conv", present], domain=MS, ndim=1,
                activation="none")
        self.op("Mul", [parts[1], f"{p}.mix.conv"], f"{p}.mix.both")
        return self.linear(f"{p}.mix.out", self.op("Transpose", [f"{p}.mix.both"], f"{p}.mix.back", perm=[0, 2, 1]), D, D)

    def mlp(self, p, x):
        layer = int(p.rpartition(".")[2])
        return self.mixture(p, x, layer) if layer > 0 else super().mlp(p, x)

    def codes(self, name, w):
        """Weights, scales and zero points (or None) of (experts, rows, columns)."""
        bits, block, zeros = self.o["moe"]
        x = w.reshape(*w.shape[:2], -1, block or w.shape[2])
        top, low, high = (1 << bits) - 1, x.min(-1), x.max(-1)
        scale = ((high - low) / top if zeros else np.abs(x).max(-1) / (top // 2)).astype(np.float32)
        z = np.clip(np.round(-low / scale), 0, top) if zeros else np.full(scale.shape, 1 << (bits - 1))
        q = np.clip(np.round(x / scale[..., None]) + z[..., None], 0, top).astype(np.uint8).reshape(w.shape)
        z = z.astype(np.uint8)
        if bits == 4:
            z = np.pad(z, ((0, 0), (0, 0), (0, z.shape[2] % 2)))
            q, z = (a[..., 0::2] | a[..., 1::2] << 4 for a in (q, z))
        scales = self.init(f"{name}.s", scale if block else scale[..., 0])
        return self.init(name, q), scales, self.init(f"{name}.z", z) if zeros else None

    def number(self, name, value):
        return self.init(name, np.array(value, np.float32))

    def router(self, p, x, layer):
        bias = np.zeros(EXPERTS, np.float32)
        bias[[layer % EXPERTS, (layer + 1) % EXPERTS]] = 2, 1.5
        self.op("MatMul", [x, self.init(f"{p}.router", self.weight(f"{p}.router", EXPERTS, D).T)], f"{p}.r0")
        self.op("Reshape", [f"{p}.r0", self.ints("rows", -1, EXPERTS)], f"{p}.r")
        self.op("Sigmoid", [f"{p}.r"], f"{p}.scores")
        self.op("Add", [f"{p}.scores", self.init(f"{p}.rb", bias)], f"{p}.biased")
        self.op("TopK", [f"{p}.biased", self.ints("top", TOP)], [f"{p}.best", f"{p}.picked"], axis=-1)
        self.op("GatherElements", [f"{p}.scores", f"{p}.picked"], f"{p}.chosen", axis=1)
        self.op("Clip", [f"{p}.chosen", self.number(f"{p}.tiny", 1e-30)], f"{p}.clip")
        self.op("Log", [f"{p}.clip"], f"{p}.log")
        self.op("Shape", [f"{p}.scores"], f"{p}.shape")
        self.op("ConstantOfShape", [f"{p}.shape"], f"{p}.fill", value=numpy_helper.from_array(np.array([-1e4], np.float32), ""))
        self.op("ScatterElements", [f"{p}.fill", f"{p}.picked", f"{p}.log"], f"{p}.shares", axis=1)

    def share(self, p, x):
        """What is missing to a sum + 1e-6."""
        self.op("ReduceSum", [f"{p}.chosen", self.ints("last.axis", -1)], f"{p}.sum")
        self.op("Add", [f"{p}.sum", self.number(f"{p}.eps", 1e-6)], f"{p}.more")
        self.op("Div", [f"{p}.sum", f"{p}.more"], f"{p}.part")
        self.op("Shape", [x], f"{p}.x.shape")
        self.op("Slice", [f"{p}.x.shape", self.ints("first", 0), self.ints("last.axis", -1)], f"{p}.x.rows")
        self.op("Concat", [f"{p}.x.rows", self.ints("one.more", 1)], f"{p}.ones", axis=0)
        return self.op("Reshape", [f"{p}.part", f"{p}.ones"], f"{p}.scale")

    def mixture(self, p, x, layer):
        bits, block, _ = self.o["moe"]
        p += ".moe"
        self.router(p, x, layer)
        both = np.empty((EXPERTS, 2 * WIDTH, D), np.float32)
        both[:, 0::2], both[:, 1::2] = self.random(EXPERTS, WIDTH, D), self.random(EXPERTS, WIDTH, D)  # gate and up by turns
        fc1, fc2 = self.codes(f"{p}.fc1", both), self.codes(f"{p}.fc2", self.random(EXPERTS, D, WIDTH))
        zeros = [*[""] * 3, fc1[2], fc2[2]] if fc1[2] else []
        extra = {"block_size": block} if block else {}
        self.op("QMoE", [x, f"{p}.shares", *fc1[:2], "", *fc2[:2], *([""] if zeros else []), *zeros], f"{p}.sum.of", domain=MS, k=TOP,
                expert_weight_bits=bits, normalize_routing_weights=1, swiglu_fusion=1, activation_type="swiglu", **extra)
        return self.op("Mul", [f"{p}.sum.of", self.share(p, x)], f"{p}.scaled")

