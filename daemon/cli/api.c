/* aned api - the routes of the daemon and the fields of their requests, as the
 * tables have them. proto/api.json is made with it. */
#include "api/api.h"

#include <getopt.h>
#include <string.h>

#include "api/doc.h"
#include "api/params.h"
#include "base/file.h"
#include "cli/cli.h"

static const char usage[] =
    "usage: aned api [PATH | --json FILE]\n"
    "\n"
    "List the routes of the daemon, or the fields of the requests to PATH:\n"
    "type, range and meaning.\n"
    "\n"
    "  --json FILE  print the OpenAPI document, with what FILE, an older one,\n"
    "               says by hand: descriptions and answers\n";

static void print_routes(void)
{
    for (size_t i = 0; i < api_n_routes; i++) {
        const char *method = doc_method(api_routes[i].method);
        char upper[8] = "";
        for (size_t k = 0; method[k] != '\0' && k + 1 < sizeof(upper); k++) {
            upper[k] = (char)(method[k] - 'a' + 'A');
        }
        printf("%-6s %-34s %s: %s\n", upper, api_routes[i].path, api_docs[i].of,
               api_docs[i].doc);
    }
}

static void print_table(const struct field *f)
{
    for (; f->name != NULL; f++) {
        printf("%s", f->name);
        if (f->type != NULL) {
            printf(" (%s", f->type);
            if (f->lo < f->hi) {
                printf(", %.15g to %.15g", f->lo, f->hi);
            }
            printf(")");
        }
        printf("\n    %s\n", f->doc);
        if (f->sub != NULL) {
            print_table(f->sub);
        }
    }
}

static int print_fields(const char *path)
{
    for (size_t i = 0; i < api_n_routes; i++) {
        const struct fields *f = api_docs[i].fields;
        if (strcmp(api_routes[i].path, path) == 0 && f != NULL) {
            for (size_t k = 0; k < countof(f->part) && f->part[k] != NULL;
                 k++) {
                print_table(f->part[k]);
            }
            return EXIT_SUCCESS;
        }
    }
    (void)fprintf(stderr, "aned api: no route '%s' with a table of fields\n",
                  path);
    return EXIT_NOINPUT;
}

static int print_json(const char *file)
{
    struct json *old = NULL;
    struct buf text = {0}, out;
    struct err e = {0};
    buf_init(&out, MIB(16));
    int rc = file_read(file, MIB(16), &text, &e);
    if (rc == 0) {
        rc = json_parse(text.p != NULL ? text.p : "", text.n, &old, &e);
    }
    if (rc == 0) {
        struct json *doc = doc_make(old);
        json_write(doc, true, &out);
        buf_puts(&out, "\n");
        json_free(doc);
        (void)fwrite(out.p, 1, out.n, stdout);
    }
    json_free(old);
    buf_fini(&text);
    buf_fini(&out);
    return rc == 0 ? EXIT_SUCCESS : err_print(&e);
}

int cli_api(int argc, char **argv)
{
    static const struct option longs[] = {
        {"help", no_argument,       NULL, 'h'},
        {"json", required_argument, NULL, 'j'},
        {NULL,   0,                 NULL, 0  },
    };
    const char *json = NULL;
    int c = 0;
    while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        if (c != 'j') {
            return cli_usage(usage, "unknown option");
        }
        json = optarg;
    }
    int left = argc - optind;
    if (left > 1 || (left == 1 && json != NULL)) {
        return cli_usage(usage, "one PATH, or --json FILE");
    }
    if (json != NULL) {
        return print_json(json);
    }
    if (left == 1) {
        return print_fields(argv[optind]);
    }
    print_routes();
    return EXIT_SUCCESS;
}
