/* accept_program.c - the program that was built: for which system, linked with
 * what, signed as whom; its unit tests. */
#include <string.h>

#include "base/macos.h"
#include "client/accept.h"
#include "client/macho.h"

#define FLOOR 15u /* the oldest macOS that aned is for */

/* The last part of an install name, for a list. */
static const char *leaf(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash != NULL ? slash + 1 : name;
}

static void check_libraries(struct accept *a, const struct macho *m)
{
    struct buf list;
    bool coreml = false;
    buf_init(&list, KIB(4));
    for (size_t i = 0; i < m->n_dylibs; i++) {
        coreml = coreml || strcmp(leaf(m->dylibs[i]), "CoreML") == 0;
        buf_printf(&list, "%s%s", i > 0 ? " " : "", leaf(m->dylibs[i]));
    }
    if (coreml) {
        accept_pass(a, "linked with %s",
                    list.n > 0 && buf_ok(&list) ? list.p : "");
    } else {
        accept_fail(a, "CoreML is not among what it is linked with: %s",
                    list.n > 0 && buf_ok(&list) ? list.p : "nothing");
    }
    buf_fini(&list);
}

void step_program(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct macho *m = calloc(1, sizeof(*m));
    struct err e = {0};
    must(m != NULL);
    if (!accept_on_mac(a)) {
        goto out;
    }
    if (macho_read(d->service.program, m, &e) < 0) {
        accept_error(a, "aned", &e);
        goto out;
    }
    if (m->arm64 && m->macos && m->minos[0] >= FLOOR) {
        accept_pass(a, "for arm64 macOS %u.%u, made with SDK %u.%u",
                    m->minos[0], m->minos[1], m->sdk[0], m->sdk[1]);
    } else {
        accept_fail(a, "for %s %s %u.%u, not for arm64 macOS %u or later",
                    m->arm64 ? "arm64" : "another processor",
                    m->macos ? "macOS" : "another system", m->minos[0],
                    m->minos[1], FLOOR);
    }
    if (strcmp(m->bundle, MACOS_IDENTIFIER) == 0) {
        accept_pass(a, "its Info.plist says %s", m->bundle);
    } else {
        accept_fail(a, "its Info.plist says `%s`, not " MACOS_IDENTIFIER,
                    m->bundle);
    }
    check_libraries(a, m);
out:
    free(m);
}

void step_signature(struct doctor *d)
{
    struct accept *a = accept_of(d);
    const char *argv[] = {"codesign", "--verify", "--strict",
                          d->service.program, NULL};
    struct macho *m = calloc(1, sizeof(*m));
    struct buf out;
    struct err e = {0};
    int code = 0;
    must(m != NULL);
    buf_init(&out, KIB(64));
    if (!accept_on_mac(a)) {
        goto out;
    }
    if (run_program(argv, accept_left(a), &out, &code, &e) < 0 ||
        macho_read(d->service.program, m, &e) < 0) {
        accept_error(a, "codesign", &e);
        goto out;
    }
    if (code != 0 || !m->is_signed) {
        accept_fail(a, "codesign ended with %d: %s", code, run_last_line(&out));
    } else if (m->ad_hoc) { /* as the linker does it */
        accept_note(a,
                    "signed by nobody (ad hoc), as `%s`: Core ML's caches may "
                    "be lost with each build; launchd/mac.md tells how to sign",
                    m->identifier);
    } else if (strcmp(m->identifier, MACOS_IDENTIFIER) != 0) {
        accept_fail(a, "signed as `%s`, not as " MACOS_IDENTIFIER,
                    m->identifier);
    } else {
        accept_pass(a, "signed as %s", m->identifier);
    }
out:
    buf_fini(&out);
    free(m);
}

void step_neural_engine(struct doctor *d)
{
    struct accept *a = accept_of(d);
    const struct json *cores = json_get(a->machine, "neural_engine_cores");
    if (json_type(cores) != JSON_NUMBER) {
        if (d->mac) {
            accept_fail(a, "this aned was built without Core ML");
        } else {
            accept_away(a, "aned was built without Core ML");
        }
    } else if (json_num(cores) > 0) {
        accept_pass(a, "%.0f cores", json_num(cores));
        accept_number(a, "cores", json_num(cores));
    } else {
        accept_fail(a, "Core ML lists no Neural Engine");
    }
}

/* "Ok:   74" of meson's last lines. */
static double count(struct accept *a, const struct buf *out, const char *key,
                    const char *name)
{
    const char *p = out->n > 0 ? strstr(out->p, key) : NULL;
    double v = p != NULL ? strtod(p + strlen(key), NULL) : 0;
    accept_number(a, name, v);
    return v;
}

void step_unit_tests(struct doctor *d)
{
    struct accept *a = accept_of(d);
    const char *argv[] = {"meson",   "test", "-C", a->o.build,
                          "--suite", "unit", NULL};
    struct buf out;
    struct err e = {0};
    int code = 0;
    if (a->o.build == NULL) {
        accept_skip(a, "no build folder was named: --build DIR");
        return;
    }
    buf_init(&out, MIB(8));
    if (run_program(argv, accept_left(a), &out, &code, &e) < 0) {
        accept_error(a, "meson", &e);
    } else {
        double ok = count(a, &out, "\nOk:", "ok");
        (void)count(a, &out, "\nFail:", "failed");
        if (code == 0 && ok == 0) {
            accept_fail(a, "no test ran: a build folder has them when cmocka "
                           "was there at its setup");
        } else if (code == 0) {
            accept_pass(a, "all of them");
        } else {
            accept_fail(a, "meson test ended with %d", code);
        }
    }
    buf_fini(&out);
}
