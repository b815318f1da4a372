"""The forms of random ONNX bundles: options of onnx_build.py, which needs packages that the tests have not."""

LFM2MOE = {"qk_norm": True, "layers": 4, "type": "lfm2_moe"}

FORMS = {
    "llama": {},
    "llama-half": {"half": True},
    "llama-packed": {"packed": True, "bias": True, "o_bias": True},
    "llama3": {"factors": True},
    "mistral": {"window": True, "type": "mistral"},
    "llama-qdq": {"weights": "qdq"},
    "llama-transposed": {"weights": "transposed"},
    "llama-nbits4": {"weights": "nbits4", "zeros": "float"},
    "llama-nbits8": {"weights": "nbits8", "zeros": "packed"},
    "llama-tied": {"embed": "tied", "fused_mlp": True},
    "llama-padded": {"weights": "nbits4", "shared": (4, 128), "fused_mlp": True, "zeros": "packed"},
    "qwen2": {"bias": True, "weights": "nbits4", "zeros": "packed", "embed": "uint4", "type": "qwen2"},
    "qwen2-split": {"bias": True, "split": True, "weights": "nbits4", "embed": "uint8", "zeros": "packed", "type": "qwen2"},
    "qwen3": {"qk_norm": True, "split": True, "weights": "nbits4", "embed": "int4", "type": "qwen3"},
    "hunyuan": {"qk_norm": True, "turn_first": True, "type": "hunyuan_v1_dense"},
    "gemma2": {"gemma": True, "caps": True, "period": 2, "layers": 4, "type": "gemma2"},
    "gemma3": {"gemma": True, "qk_norm": True, "period": 3, "layers": 6, "shared": (8, 32), "type": "gemma3_text"},
    "gemma3-half": {"gemma": True, "qk_norm": True, "period": 3, "layers": 6, "half": True, "wide_norms": True,
                    "type": "gemma3_text"},
    # bits, numbers of a block (0: a row is one), zero points
    "lfm2moe-8": LFM2MOE | {"moe": (8, 32, False)},
    "lfm2moe-8-rows": LFM2MOE | {"moe": (8, 0, False)},
    "lfm2moe-8-zeros": LFM2MOE | {"moe": (8, 16, True)},
    "lfm2moe-4-rows": LFM2MOE | {"moe": (4, 0, False)},
    "lfm2moe-4-zeros": LFM2MOE | {"moe": (4, 16, True)},
}

NONE = {  # decoders of no family, and what the error says
    "gemma2-bases": ({"gemma": True, "caps": True, "period": 2, "layers": 4, "type": "gemma2", "local_base": 5e4}, "by base 50000"),
}
