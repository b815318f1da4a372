/* fuzz_onnx.c - any bytes as an ONNX model. Whole decoders that are changed are
 * fuzz_onnx_drawn.c's. */
#include "onnx_any.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct onnx_config nothing;
    struct err e = {0};
    (void)read_model((struct span){(const char *)p, n}, &nothing, &e);
    return 0;
}
