#include "engine/cpu/bind.h"
#include "engine/cpu/cpu.h"
int fuse_run(struct backend_model *m, struct err *e)
{
    return bind_drop_dead(m, e);
}
