/* embed.c - runs during the build: the bytes of files, one after the other, as
 * a C array, NAME, with NAME_n of them.
 *
 *   embed NAME FILE... >OUT.c
 */
#include <stdio.h>

static int put_file(const char *path, unsigned long *n)
{
    FILE *f = fopen(path, "rb");
    int c = 0;
    if (f == NULL) {
        return -1;
    }
    while ((c = getc(f)) != EOF) {
        printf("%s%d,", *n % 20 == 0 ? "\n" : "", c);
        ++*n;
    }
    c = ferror(f);
    return fclose(f) != 0 || c != 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    unsigned long n = 0;
    if (argc < 3) {
        return 1;
    }
    printf("#include <stddef.h>\n"
           "extern const unsigned char %s[];\n"
           "extern const size_t %s_n;\n"
           "const unsigned char %s[] = {",
           argv[1], argv[1], argv[1]);
    for (int i = 2; i < argc; i++) {
        if (put_file(argv[i], &n) != 0) {
            return 1;
        }
    }
    printf("\n};\nconst size_t %s_n = %lu;\n", argv[1], n);
    return fflush(stdout) != 0;
}
