/* replay.c - run a fuzz target over the files of one folder. Keeps corpora
 * useful where libFuzzer is not shipped. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int main(int argc, char **argv)
{
    DIR *d = argc == 2 ? opendir(argv[1]) : NULL;
    if (d == NULL) {
        return EXIT_FAILURE;
    }
    int files = 0;
    for (struct dirent *e = NULL; (e = readdir(d)) != NULL;) {
        char path[1024];
        if (e->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s/%s", argv[1], e->d_name);
        FILE *f = fopen(path, "rbe");
        if (f == NULL) {
            break;
        }
        enum { MAX = 1 << 20 };
        uint8_t *buf =
            malloc(MAX); /* exact size below lets ASan see overreads */
        size_t n = buf != NULL ? fread(buf, 1, MAX, f) : 0;
        (void)fclose(f);
        uint8_t *exact = malloc(n > 0 ? n : 1);
        if (buf == NULL || exact == NULL) {
            return EXIT_FAILURE;
        }
        for (size_t i = 0; i < n; i++) {
            exact[i] = buf[i];
        }
        (void)LLVMFuzzerTestOneInput(exact, n);
        free(exact);
        free(buf);
        files++;
    }
    (void)closedir(d);
    printf("%d inputs\n", files);
    return files > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
