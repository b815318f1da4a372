/* backend_coreml.m - the table of functions. */
#import "engine/coreml/coreml.h"

static void coreml_info(const struct backend_model *m, struct backend_info *ret)
{
    *ret = (struct backend_info){
        .n_in = m->n_in,
        .n_out = m->n_out,
        .n_states = m->n_states,
        .in = m->in,
        .out = m->out,
        .states = m->states,
        .t_min = m->t_min,
        .t_max = m->t_max,
        .exact_widths = m->exact,
        .n_exact_widths = m->n_exact,
        .arith = m->arith,
        .weight_bytes = m->program->weight_bytes,
        .state_bytes = m->state_bytes,
    };
}

void coreml_counts(const struct backend_model *m, struct coreml_counts *ret)
{
    *ret = m->counts;
}

const struct backend backend_coreml = {
    .name = "coreml",
    .models_max = COREML_MODELS_MAX,
    .open = coreml_open,
    .close = coreml_close,
    .info = coreml_info,
    .warm = coreml_warm,
    .array_new = coreml_array_new,
    .array_free = coreml_array_free,
    .lock = coreml_lock,
    .unlock = coreml_unlock,
    .bind = coreml_bind,
    .unbind = coreml_unbind,
    .rebind = coreml_rebind,
    .predict = coreml_predict,
    .state_new = coreml_state_new,
    .state_free = coreml_state_free,
    .state_copy = coreml_state_copy,
    .state_with = coreml_state_with,
    .block_arrays = coreml_block_arrays,
    .block_save = coreml_block_save,
    .block_load = coreml_block_load,
    .plan = coreml_plan,
    .machine = coreml_machine,
};
