/* keys.c - which members of config.json are understood. One that is not in a
 * table here, and not null, may change what the model computes. */
#include <string.h>

#include "source/hf/hf.h"

/* Read by config.c, rope.c or tensors.c, and of every family. */
static const char *const read_keys[] = {
    "architectures",       "model_type",
    "num_hidden_layers",   "hidden_size",
    "num_attention_heads", "num_key_value_heads",
    "head_dim",            "intermediate_size",
    "rms_norm_eps",        "max_position_embeddings",
    "vocab_size",          "tie_word_embeddings",
    "hidden_act",          "hidden_activation",
    "rope_parameters",     "rope_theta",
    "rope_scaling",        "partial_rotary_factor",
    "layer_types",         "sliding_window",
    "use_sliding_window",  "max_window_layers",
    "text_config",         "original_max_position_embeddings",
};

/* They say nothing about the arithmetic of inference: training, generation
 * (which clients ask for), how Python keeps the model, names. Biases are in the
 * file or not: their tensors are read. */
static const char *const notes[] = {
    "_name_or_path", "_attn_implementation", "_attn_implementation_autoset",
    "attention_bias", "attention_dropout", "auto_map", "bos_token_id",
    "cache_implementation", "classifier_dropout", "dtype", "embd_pdrop",
    "eod_token_id", "eos_token_id", "eos_token_ids", "finetuning_task",
    "hidden_dropout", "id2label", "im_end_id", "im_start_id",
    "initializer_range", "label2id", "max_length", "mlp_bias", "model_name",
    "org_vocab_size", "pad_id", "pad_token_id", "prefix", "pretraining_tp",
    "resid_pdrop", "sep_token_id", "task_specific_params", "text_end_id",
    "text_start_id", "tokenizer_class", "torch_dtype", "transformers_version",
    "use_cache", "vocab_size_per_layer_input", "unsloth_fixed",
    "unsloth_version",
    /* what old versions wrote into every part of a config */
    "add_cross_attention", "bad_words_ids", "begin_suppress_tokens",
    "chunk_size_feed_forward", "cross_attention_hidden_size",
    "decoder_start_token_id", "diversity_penalty", "do_sample",
    "early_stopping", "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty", "forced_bos_token_id",
    "forced_eos_token_id", "is_decoder", "length_penalty", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams",
    "num_return_sequences", "output_attentions", "output_hidden_states",
    "output_scores", "problem_type", "pruned_heads", "remove_invalid_values",
    "repetition_penalty", "return_dict", "return_dict_in_generate",
    "suppress_tokens", "temperature", "tf_legacy_loss", "tie_encoder_decoder",
    "top_k", "top_p", "torchscript", "typical_p", "use_bfloat16",
};

/* They pass when they are off: false, 0 or an empty list. */
static const char *const offs[] = {
    "use_bidirectional_attention", "is_encoder_decoder",    "use_mrope",
    "enable_moe_block",            "num_experts",           "num_local_experts",
    "moe_intermediate_size",       "num_experts_per_tok",   "top_k_experts",
    "output_router_logits",        "use_cla",               "lm_head_bias",
    "attn_logit_softcapping",      "final_logit_softcapping",
};

/* They pass when they are 1: factors and steps. */
static const char *const ones[] = {"full_attn_mod", "interpolate_factor"};

/* Of a model with other senses: what is beside text_config. */
static const char *const beside[] = {
    "audio_config",    "audio_token_id",    "audio_token_index",
    "boa_token_id",    "boa_token_index",   "boi_token_id",
    "boi_token_index", "eoa_token_id",      "eoa_token_index",
    "eoi_token_id",    "eoi_token_index",   "image_token_id",
    "image_token_index", "mm_tokens_per_image",
    "video_token_id",  "vision_config",     "vision_soft_tokens_per_image",
};

static bool among(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(key, list[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool off(const struct json *c)
{
    switch (json_type(c)) {
    case JSON_NULL:
        return true;
    case JSON_BOOL:
        return !json_bool(c);
    case JSON_NUMBER:
        return json_num(c) == 0;
    case JSON_ARRAY:
    case JSON_OBJECT:
        return json_first(c) == NULL;
    case JSON_STRING:
    default:
        return false;
    }
}

static bool of_family(const struct hf *h, const char *key)
{
    size_t n = 0;
    while (h->family->keys != NULL && h->family->keys[n] != NULL) {
        n++;
    }
    return among(key, h->family->keys, n);
}

static int check_key(const struct hf *h, const struct json *c, bool root,
                     struct err *e)
{
    const char *key = json_key(c);
    bool known = among(key, read_keys, countof(read_keys)) ||
                 among(key, notes, countof(notes)) || of_family(h, key) ||
                 (root && h->text != h->root &&
                  among(key, beside, countof(beside)));
    if (known || json_type(c) == JSON_NULL) {
        return 0;
    }
    /* images alone are looked at from both sides */
    const char *text = json_str(c);
    if (strcmp(key, "use_bidirectional_attention") == 0 && text != NULL &&
        strcmp(text, "vision") == 0) {
        return 0;
    }
    if (among(key, ones, countof(ones)) && json_num(c) == 1) {
        return 0;
    }
    if (among(key, offs, countof(offs))) {
        return off(c) ? 0
                      : err_set(e, ERR_UNSUPPORTED,
                                "config.json: %s is not converted", key);
    }
    if (strcmp(key, "quantization_config") == 0 && h->scaled) {
        return 0;
    }
    if (strcmp(key, "compression_config") == 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: %s: the weights are quantised; aned "
                       "converts those of F32, F16, BF16 and F8 without scales",
                       key);
    }
    return err_set(e, ERR_UNSUPPORTED,
                   "config.json: aned does not know '%.64s', and it may change "
                   "what the model computes",
                   key);
}

int hf_check_keys(const struct hf *h, struct err *e)
{
    for (const struct json *c = json_first(h->root); c != NULL;
         c = json_next(c)) {
        RETERR(check_key(h, c, true, e));
    }
    if (h->text == h->root) {
        return 0;
    }
    for (const struct json *c = json_first(h->text); c != NULL;
         c = json_next(c)) {
        RETERR(check_key(h, c, false, e));
    }
    return 0;
}
