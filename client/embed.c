/* embed.c - runs during the build: a file's bytes as a C array, NAME, with
 * NAME_n of them.   usage: embed NAME FILE >OUT.c */
#include <stdio.h>

int main(int argc, char **argv)
{
    FILE *f = argc == 3 ? fopen(argv[2], "rb") : NULL;
    int c = 0;
    unsigned long n = 0;
    if (f == NULL) {
        return 1;
    }
    printf("#include <stddef.h>\n"
           "extern const unsigned char %s[];\n"
           "extern const size_t %s_n;\n"
           "const unsigned char %s[] = {",
           argv[1], argv[1], argv[1]);
    while ((c = getc(f)) != EOF) {
        printf("%s%d,", n % 20 == 0 ? "\n" : "", c);
        n++;
    }
    printf("\n};\nconst size_t %s_n = %lu;\n", argv[1], n);
    c = ferror(f);
    return fclose(f) != 0 || c != 0 || fflush(stdout) != 0;
}
