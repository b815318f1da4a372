"""The families of models that the suites judge, one row each: the one file of the tests to touch for another.

A row without a shape is a model of the shared data, with logits of the transformers library. One with a shape is a tiny
model of ours in oracle/models/NAME: `oracle/make_family.py NAME` makes it, and the README there says how. `layer` and
`embed_scale` describe it by the source of another implementation, never by what the converter makes of it.
"""
import dataclasses
import pathlib
import sys

TESTS = pathlib.Path(__file__).parent
sys.path.insert(0, str(TESTS / "bench"))

from mkgguf import Shape  # noqa: E402


@dataclasses.dataclass
class Family:
    name: str
    arch: str = ""  # "": the name
    pairs: bool = False  # a rotated pair is (2i, 2i + 1) in the file, not (i, i + half)
    shape: Shape | None = None
    gguf: bool = True  # there is one; else a folder in the form of the transformers library
    embed_scale: float = 1.0
    layer: dict = dataclasses.field(default_factory=dict)  # where it differs from decoder.PLAIN_LAYER
    mistakes: tuple = ()  # of oracle/family_mistakes.py, to be planted
    refused: dict = dataclasses.field(default_factory=dict)  # keys behind "ARCH." with which it must not be converted

    @property
    def architecture(self):
        return self.arch or self.name

    def folder(self, shared):
        """Where model.gguf, expected.npz and mistakes.json lie."""
        return TESTS / "oracle" / "models" / self.name if self.shape else shared / "data" / "families" / self.name / "a"

    def source(self, shared):
        """What is converted: a GGUF, or where no exporter writes one the folder itself."""
        return self.folder(shared) / "model.gguf" if self.gguf else self.folder(shared)


ROWS = [
    Family("mistral", arch="llama", pairs=True),
    Family("qwen3"),
    Family("phi3"),
    Family("hunyuan-dense"),
    Family("gemma2"),
    Family("gemma4-e", arch="gemma4"),
    Family("gemma4"),
    Family("granite", pairs=True),
    Family("olmo2"),
    Family("smollm3", pairs=True),
    Family("lfm2"),
    Family("lfm2moe"),
    Family("zaya", gguf=False),
    Family("gemma", shape=Shape("gemma", 3, 48, 4, 1, 24, 128, 320, eps=1e-6, context=512),
           embed_scale=48**0.5, layer={"act": "gelu_tanh"},
           mistakes=("rope_other", "no_embscale", "scale_by_width", "gain_plus_one", "gate_up_swap", "act_silu", "gelu_erf")),
    Family("glm4", pairs=True,
           shape=Shape("glm4", 3, 48, 4, 2, 16, 96, 320, tied=False, bias=True, rope_dim=8, eps=1e-5, context=512,
                       fused_up=True, post_norm=True),
           mistakes=("rope_other", "full_rope", "no_bias", "no_postnorm", "gate_up_swap"),
           refused={"rope.dimension_sections": [2, 1, 1, 0], "nextn_predict_layers": 1}),  # models that see, GLM-OCR
    Family("exaone4",
           shape=Shape("exaone4", 3, 64, 4, 2, 16, 88, 320, rope_base=1e6, eps=1e-5, context=512, qk_norm=True, pre_norm=False,
                       post_norm=True, tables={"rope_freqs.weight": [1, 1, 1.5, 4, 9, 16, 16, 16]}),
           mistakes=("rope_other", "no_factors", "no_qknorm", "qknorm_order", "no_postnorm", "gate_up_swap"),
           refused={"attention.sliding_window": 32}),  # 32B
]
BY_NAME = {row.name: row for row in ROWS}
FAMILIES = list(BY_NAME)
PAIRS = {row.architecture for row in ROWS if row.pairs}
