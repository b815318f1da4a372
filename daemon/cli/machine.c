/* aned machine - what aned finds in this machine: the facts that its answers
 * and its speed depend on, for a report. */
#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "cli/cli.h"
#include "engine/backend.h"
#include "engine/cpu/backend_cpu.h"
#include "proto/json.h"
#if defined(ANED_COREML)
#include "engine/coreml/backend_coreml.h"
#endif

static const char usage[] =
    "usage: aned machine [--json]\n"
    "\n"
    "Print what aned finds in this machine: system, processor, memory, the\n"
    "kernels that it has for it (best first), and the backends of this "
    "build.\n";

#if defined(__APPLE__)
/* Text of sysctl(3); false: there is none. */
static bool ask(const char *name, char *ret, size_t size)
{
    return sysctlbyname(name, ret, &size, NULL, 0) == 0 && ret[0] != '\0';
}

static void put_system(struct json *o)
{
    static const struct {
        const char *key, *name;
    } rows[] = {
        {"release", "kern.osproductversion"   },
        {"build",   "kern.osversion"          },
        {"chip",    "machdep.cpu.brand_string"},
    };
    char text[128];
    int translated = 0;
    size_t n = sizeof(translated);
    json_add_str(o, "system", "macOS");
    for (size_t i = 0; i < countof(rows); i++) {
        json_add_str(o, rows[i].key,
                     ask(rows[i].name, text, sizeof(text)) ? text : "unknown");
    }
    /* Rosetta: such a process has no Neural Engine */
    json_add_bool(
        o, "translated",
        sysctlbyname("sysctl.proc_translated", &translated, &n, NULL, 0) == 0 &&
            translated == 1);
}

static int64_t memory_bytes(void)
{
    int64_t bytes = 0;
    size_t n = sizeof(bytes);
    return sysctlbyname("hw.memsize", &bytes, &n, NULL, 0) == 0 ? bytes : 0;
}
#else
static void put_system(struct json *o)
{
    struct utsname u;
    bool known = uname(&u) == 0;
    json_add_str(o, "system", known ? u.sysname : "unknown");
    json_add_str(o, "release", known ? u.release : "unknown");
    json_add_str(o, "build", known ? u.version : "unknown");
    json_add_str(o, "chip", known ? u.machine : "unknown");
    json_add_bool(o, "translated", false);
}

static int64_t memory_bytes(void)
{
    return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}
#endif

static void put_processor(struct json *o)
{
    struct utsname u;
    json_add_str(o, "processor", uname(&u) == 0 ? u.machine : "unknown");
    json_add_int(o, "cores", sysconf(_SC_NPROCESSORS_ONLN));
    json_add_int(o, "memory_bytes", memory_bytes());
    json_add_int(o, "page_bytes", sysconf(_SC_PAGESIZE));
    struct json *list = json_add_array(o, "kernels");
    for (size_t i = 0; cpu_isa(i) != NULL; i++) {
        json_add_str(list, NULL, cpu_isa(i));
    }
}

static void put_backends(struct json *o)
{
    static const char *const names[] = {"cpu", "interpreter", "coreml"};
    struct json *list = json_add_array(o, "backends");
    for (size_t i = 0; i < countof(names); i++) {
        if (backend_find(names[i]) != NULL) {
            json_add_str(list, NULL, names[i]);
        }
    }
#if defined(ANED_COREML)
    json_add_int(o, "neural_engine_cores", coreml_neural_cores());
#endif
}

/* One "key  value" line for each member; lists as words. */
static void print_plain(const struct json *o)
{
    for (const struct json *c = json_first(o); c != NULL; c = json_next(c)) {
        printf("%-20s", json_key(c));
        switch (json_type(c)) {
        case JSON_STRING:
            printf(" %s", json_str(c));
            break;
        case JSON_NUMBER:
            printf(" %.0f", json_num(c));
            break;
        case JSON_BOOL:
            printf(" %s", json_bool(c) ? "yes" : "no");
            break;
        case JSON_NULL:
        case JSON_ARRAY:
        case JSON_OBJECT:
            for (const struct json *x = json_first(c); x != NULL;
                 x = json_next(x)) {
                printf(" %s", json_str(x));
            }
        }
        (void)putchar('\n');
    }
}

/* Numbers of a tree that is being built are text; read back they are numbers.
 */
static int print(const struct json *o, bool as_json)
{
    struct buf b;
    struct json *j = NULL;
    struct err e = {0};
    buf_init(&b, KIB(64));
    json_write(o, as_json, &b);
    must(buf_ok(&b)); /* some twenty short members */
    int rc = json_parse(b.p, b.n, &j, &e);
    must(rc == 0);
    if (as_json) {
        printf("%s\n", b.p);
    } else {
        print_plain(j);
    }
    json_free(j);
    buf_fini(&b);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_CANTCREAT;
}

int cli_machine(int argc, char **argv)
{
    static const struct option longs[] = {
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL,   0,           NULL, 0  },
    };
    bool as_json = false;
    int opt = 0;
    while ((opt = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (opt == 'h') {
            (void)fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        if (opt != 'j') {
            return cli_usage(usage, "wrong option");
        }
        as_json = true;
    }
    if (optind != argc) {
        return cli_usage(usage, "'%s' is not wanted", argv[optind]);
    }
    struct json *o = json_object();
    json_add_str(o, "object", "aned.machine");
    json_add_str(o, "version", ANED_VERSION);
    put_system(o);
    put_processor(o);
    put_backends(o);
    int rc = print(o, as_json);
    json_free(o);
    return rc;
}
