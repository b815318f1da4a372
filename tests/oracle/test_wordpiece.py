"""WordPiece vocabularies (tokenizer.ggml.model bert) against the tokenizers library: texts of ours, of each character that its
tables know, and random ones; lowered and as they are."""
import random
import subprocess
import unicodedata

import gguf
import pytest

from test_tokenizers import TEXTS

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CORPUS = ["The daemon runs a model on the Neural Engine, and keeps what it computed; it's unbelievable!", "Stra\u00dfe caf\u00e9 na\u00efve \u00c5ngstr\u00f6m",
          "\u4f60\u597d\uff0c\u4e16\u754c \u65e5\u672c\u8a9e", "\ud55c\uad6d\uc5b4 \ubb38\uc7a5", "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "x = 2**10; // 3.14159 [a] {b} <c> $5 #6 @7",
          *TEXTS] * 3


def train(lower):
    t = tokenizers.BertWordPieceTokenizer(lowercase=lower)
    t.train_from_iterator(CORPUS, vocab_size=900, min_frequency=1, show_progress=False, special_tokens=SPECIAL)
    return t


def phantom(token):
    """As llama.cpp's converter writes it."""
    if token in SPECIAL:
        return token
    return token[2:] if token.startswith("##") else "\u2581" + token


def write(path, t):
    vocab = sorted(t.get_vocab(), key=t.get_vocab().get)
    w = gguf.GGUFWriter(str(path), "bert")
    w.add_tokenizer_model("bert")
    w.add_token_list([phantom(x) for x in vocab])
    w.add_token_types([gguf.TokenType.CONTROL if x in SPECIAL else gguf.TokenType.NORMAL for x in vocab])
    w.add_bos_token_id(vocab.index("[CLS]"))
    w.add_sep_token_id(vocab.index("[SEP]"))
    w.add_unk_token_id(vocab.index("[UNK]"))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    return path


@pytest.fixture(scope="module", params=[True, False], ids=["lowered", "cased"])
def both(request, tmp_path_factory):
    t = train(request.param)
    return t, write(tmp_path_factory.mktemp("wpm") / "v.gguf", t)


def tokenize(aned, path, text, *args):
    out = subprocess.run([aned, "tokenize", path, *args], input=text.encode(), capture_output=True, timeout=60, check=True).stdout
    return [int(i) for i in out.split()]


def check(aned, both, text):
    t, path = both
    got, want = tokenize(aned, path, text), t.encode(text, add_special_tokens=False).ids
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        pytest.fail(f"{text[:80]!r}: from {at} aned {got[at:at + 5]}, want {want[at:at + 5]} ({t.decode(want[max(0, at - 3):at + 3])!r})")


@pytest.mark.parametrize("i", range(len(TEXTS)))
def test_texts(aned, both, i):
    check(aned, both, TEXTS[i])


def known():
    """Characters that the library's tables (of an older Unicode) class as newer ones do."""
    n, p = tokenizers.normalizers.BertNormalizer(lowercase=False, strip_accents=True), tokenizers.pre_tokenizers.BertPreTokenizer()
    found = []
    for c in map(chr, [*range(0xD800), *range(0xE000, 0x30000)]):
        kind = unicodedata.category(c)
        plain = "".join(x for x in unicodedata.normalize("NFD", c) if unicodedata.category(x) != "Mn")
        ascii_mark = c.isascii() and not c.isalnum() and kind[0] in "PS"
        theirs = n.normalize_str(c).strip()
        gone = kind in ("Cc", "Cf", "Co") or c == "\ufffd"
        alone = len(p.pre_tokenize_str("a" + c + "b")) == 3
        if kind != "Cn" and theirs == ("" if gone else plain.strip()) and alone == (kind[0] == "P" or ascii_mark):
            found.append(c)
    return found


def test_each_character(aned, both):
    """Alone between letters, and alone."""
    chars = known()
    assert len(chars) > 50_000
    for at in range(0, len(chars), 20_000):
        check(aned, both, "\n".join(f"the{c}run {c}" for c in chars[at:at + 20_000]))


def test_random_texts(aned, both):
    draw = random.Random(123)
    letters = [c for c in known() if draw.random() < 0.005] + list("abehtnoi THE \n\t'.,!0123456789\u00e9\u0301\u00df\u4f60\u597d\ud55c\u0430\u2581\u00a0[]#") * 8
    words = [w for text in CORPUS[:6] for w in text.split()]
    lines = []
    for _ in range(3000):
        part = [draw.choice(words) if draw.random() < 0.4 else "".join(draw.choice(letters) for _ in range(draw.randint(1, 12)))
                for _ in range(draw.randint(1, 9))]
        lines.append(draw.choice(["", " "]).join(part))
    for at in range(0, len(lines), 500):
        check(aned, both, "\n".join(lines[at:at + 500]))


def test_long_words(aned, both):
    for n in (99, 100, 101, 400):
        check(aned, both, "a" * n + " the " + "\u4f60" * n)


def test_around_a_text(aned, both):
    t, path = both
    got = tokenize(aned, path, "the [MASK] runs[SEP]", "--bos", "--special")
    assert got == [t.token_to_id("[CLS]"), *t.encode("the [MASK] runs[SEP]", add_special_tokens=False).ids]
    back = subprocess.run([aned, "detokenize", path], input=" ".join(map(str, t.encode("unbelievable engine", add_special_tokens=False).ids)).encode(),
                          capture_output=True, check=True).stdout.decode()
    assert back == "unbelievable engine"


def test_bytes_that_are_no_text(aned, both):
    """They are left out."""
    out = subprocess.run([aned, "tokenize", both[1]], input=b"the\xff\xfe run\xc3 \xe4\xbd", capture_output=True, check=True).stdout
    assert [int(i) for i in out.split()] == tokenize(aned, both[1], "the run")
