#include "proto/parent.h"

#include "proto/msg.h"

int parent_tell(uint32_t request, enum frame_type type, struct json *j,
                struct err *e)
{
    struct buf b;
    buf_init(&b, FRAME_WORKER_MAX);
    json_write(j, false, &b);
    json_free(j);
    int rc = buf_ok(&b) ? frame_write_fd(CONTROL_FD, type, request, b.p, b.n, e)
                        : err_set(e, ERR_TOO_BIG, "the result passes a frame");
    buf_fini(&b);
    return rc;
}

int parent_tell_error(uint32_t request, const struct err *why)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, FRAME_WORKER_MAX);
    msg_error_put(&b, why);
    int rc = frame_write_fd(CONTROL_FD, FRAME_ERROR, request, b.p, b.n, &e);
    buf_fini(&b);
    return err_exit(rc < 0 ? rc : why->code);
}
