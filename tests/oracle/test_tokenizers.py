"""Vocabularies of the families against their own tokenizers: `tokenizers` for a tokenizer.json, `sentencepiece` for a
tokenizer.model; and each pre-tokenizer against the regular expressions of the models' own files, in another engine. The texts are
ours, and random."""
import itertools
import random
import subprocess

import gguf
import pytest

import mkgguf
from oracle_tools import run

TEXTS = [
    "", " ", "  ", "\n", "\n\n\n", " \n \n", "Hello, world!", "  leading and   many  spaces ", "don't I'LL we've 's", "tab\tand\r\nCRLF\r\r",
    "1 12 123 1234 12345 123456789012", "3.14159 x=2**10; // comment\n\tif (a != b) { return -1; }\n", "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m cafe\u0301 e\u0301",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \ud55c\uad6d\uc5b4 \ubb38\uc7a5", "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\U0001F600\U0001F468\u200d\U0001F469\u200d\U0001F467 \u2764\ufe0f", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0939\u093f\u0928\u094d\u0926\u0940", "CamelCaseHTTPServer snake_case_name",
    "\u2581 lower one eighth", "a" * 300, "the the the the", "\u00a0nbsp\u3000ideographic\u2003em", "\u2167 \u00bd \u0663\u0664 \U0001d7d8",
    "<b>html</b> & \"quotes\" 'single'",
]


def texts(n):
    draw = random.Random(16)
    letters = "abehtnoi THE \n\t'.,!0123456789\u00e9\u0301\u00df\u4f60\u597d\u306e\ud55c\u0430\u0e2a\u2581\u00a0\U0001F600"
    return TEXTS + ["".join(draw.choice(letters) for _ in range(draw.randint(1, 80))) for _ in range(n)]


class Json:
    """No text of a special token is looked for in a text; nothing is put before it."""

    def __init__(self, path, family):
        tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
        self.t = tokenizers.Tokenizer.from_file(str(path))
        pre = tokenizers.pre_tokenizers
        # The small tokenizers are not in everything those of their families, whose names the GGUFs have.
        if family == "qwen3":
            self.t.normalizer = tokenizers.normalizers.NFC()
        if family == "granite":
            self.t.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])

    def encode(self, text):
        return self.t.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.t.decode(ids, skip_special_tokens=False)


class Pieces:
    def __init__(self, path):
        sentencepiece = pytest.importorskip("sentencepiece", reason="the sentencepiece package is not installed")
        self.t = sentencepiece.SentencePieceProcessor(model_file=str(path))

    def encode(self, text):
        return self.t.encode(text)

    def decode(self, ids):
        return self.t.decode(ids)


def families(shared):
    return sorted(p.parent for p in (shared / "data" / "families").glob("*/*/model.gguf"))


def ask(aned, what, source, data):
    return subprocess.run([aned, what, source], input=data, capture_output=True, timeout=60, check=True).stdout


def check(aned, folder):
    file = folder / "tokenizer.json"
    theirs = Json(file, folder.parent.name) if file.exists() else Pieces(folder / "tokenizer.model")
    for text in texts(100):
        got = [int(i) for i in ask(aned, "tokenize", folder / "model.gguf", text.encode()).split()]
        want = theirs.encode(text)
        assert got == want, f"{folder.parent.name}: {text!r}\n  aned {got}\n  want {want}"
        back = ask(aned, "detokenize", folder / "model.gguf", " ".join(map(str, want)).encode()).decode()
        assert back == theirs.decode(want), f"{folder.parent.name}: {want} gives {back!r}"


@pytest.mark.parametrize("family", ["gemma2", "gemma4", "gemma4-e", "granite", "hunyuan-dense", "lfm2", "lfm2moe", "mistral", "olmo2",
                                    "phi3", "privacy-filter", "qwen3", "smollm3"])
def test_family(aned, shared, family):
    check(aned, shared / "data" / "families" / family / "a")


def test_no_family_is_forgotten(shared):
    names = test_family.pytestmark[0].args[1]
    assert [p.parent.name for p in families(shared)] == names


# --- pre-tokenizers ---

CASED = r"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{0}]{1}[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{0}]{2}(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = ENDS + "|" + WORDS + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
QWEN2 = ENDS + "|" + WORDS + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
O200K = CASED.format("", "*", "+") + "|" + CASED.format("", "+", "*") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL
KIMI = (r"[\p{Han}]+|" + CASED.format("&&[^\\p{Han}]", "*", "+") + "|" + CASED.format("&&[^\\p{Han}]", "+", "*") +
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL)
PUNCT = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
DEEPSEEK3 = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", PUNCT + r"| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL]
LINES = r"[^\n]+|[\n]+"
ASIAN = ("[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
         "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+")
HALVES = "|".join(r"\s{%d}(?!\S)" % (1 << k) for k in range(9, 1, -1)) + r"|\s{1,2}(?!\S)|\s{1}"

# Name -> patterns, and what else is done ("whole": a word that is a token is taken whole).
PRES = {
    "gpt-2": ([GPT2], ""), "starcoder": ([r"\p{N}", GPT2], ""), "llama-bpe": ([LLAMA3], "whole"), "lfm2": ([LLAMA3], "whole"),
    "jina-v5-nano": ([LLAMA3], "whole"), "dbrx": ([LLAMA3], ""), "qwen2": ([QWEN2], "nfc"), "f2llmv2": ([QWEN2], "nfc"),
    "hunyuan": ([QWEN2], ""), "gpt-4o": ([O200K], ""), "talkie": ([O200K], ""), "granite-embed-multi-97m": ([O200K], "whole"),
    "deepseek-v3": (DEEPSEEK3, ""), "hunyuan-dense": (DEEPSEEK3, ""), "joyai-llm": (DEEPSEEK3, ""), "hy_v4": (DEEPSEEK3, ""),
    "minicpm5": ([r"\p{N}{1,3}", ENDS + "|" + WORDS + r"|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL], "whole"),
    "jais-2": ([ENDS + "|" + WORDS + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + HALVES], ""),
    "spark2_5": ([*DEEPSEEK3[:2], PUNCT + r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"], ""),
    "tiny_aya": ([r"\d{1,3}(?=(?:\d{3})*\b)", O200K], ""), "cohere2moe": ([r"\d{1,3}(?=(?:\d{3})*\b)", O200K], ""),
    "superbpe": ([r"\p{N}+", r"\d{1,3}(?=(?:\d{3})*(?!\d))"], ""), "kimi-k2": ([KIMI], ""),
    "afmoe": ([r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", ASIAN, PUNCT + r"| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL], ""),
    "laguna": ([LINES, QWEN2], ""), "ufakzeka": ([QWEN2[len(ENDS) + 1:]], ""),
    "exaone-moe": ([ENDS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|"
                    r"\s+(?!\S)|\s+"], ""),
}


def pairs():
    """A vocabulary in which nearly all neighbours of a word merge: (tokens, merges)."""
    alphabet = mkgguf.byte_alphabet()
    tokens = [alphabet[b] for b in range(256)]
    common = [alphabet[b] for b in b" \n\rabehtnoiTHE.,!'s0123456789"] + [alphabet[b] for b in "\u00e9\u0301\u4f60\u3002\u0430".encode()]
    merges = [(a, b) for a, b in itertools.product(common, repeat=2)]
    random.Random(5).shuffle(merges)
    return tokens + sorted({a + b for a, b in merges}), merges


def write_vocabulary(path, pre, tokens, merges):
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_merges([f"{a} {b}" for a, b in merges])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def reference(patterns, how, tokens, merges):
    tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    t = tokenizers.Tokenizer(tokenizers.models.BPE({x: i for i, x in enumerate(tokens)}, merges, ignore_merges=how == "whole"))
    pre = tokenizers.pre_tokenizers
    t.pre_tokenizer = pre.Sequence([pre.Split(tokenizers.Regex(p), "isolated") for p in patterns] +
                                   [pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    if how == "nfc":
        t.normalizer = tokenizers.normalizers.NFC()
    return t


@pytest.mark.parametrize("pre", PRES)
def test_pre_tokenizer(aned, tmp_path, pre):
    tokens, merges = pairs()
    write_vocabulary(tmp_path / "v.gguf", pre, tokens, merges)
    theirs = reference(*PRES[pre], tokens, merges)
    long = [" " * n + end for n in (3, 63, 64, 65, 511, 512, 513, 1500) for end in ("", "a", "\n", "\n a", "1")]
    han = ["\u4f60\u3002\u4f60\u3001\u4f60\u3005\u4f60\u30fc\u4f60"]  # what several scripts use
    digits = ["1234567" + end for end in ("", "a", "_", " 12345678.", "\u0663\u0664", "\u0301")] + ["a1234", "_12345", "\u0661234567"]
    for text in texts(60) + long + digits + han:
        got = [int(i) for i in ask(aned, "tokenize", tmp_path / "v.gguf", text.encode()).split()]
        want = theirs.encode(text, add_special_tokens=False).ids
        assert got == want, f"{pre}: {text!r}\n  aned {[tokens[i] for i in got]}\n  want {[tokens[i] for i in want]}"


def test_an_unknown_pre_tokenizer_is_named(aned, tmp_path):
    write_vocabulary(tmp_path / "v.gguf", "martian", *pairs())
    assert "martian" in run(aned, "tokenize", tmp_path / "v.gguf", code=65)
