#include "base/macos.h"

#include <string.h>
#include <strings.h>

bool macos_is_service(const char *name)
{
    static const char application[] = "application.";
    return name != NULL && name[0] != '\0' && strcmp(name, "0") != 0 &&
           strncmp(name, application, sizeof(application) - 1) != 0;
}

/* What follows "folder/" in path, or "" for the folder itself; NULL when path
 * is not in it. macOS's volumes do not tell upper from lower case. */
static const char *below(const char *path, const char *folder, size_t n)
{
    if (n == 0 || strncasecmp(path, folder, n) != 0) {
        return NULL;
    }
    if (path[n] == '\0') {
        return "";
    }
    return path[n] == '/' ? path + n + 1 : NULL;
}

const char *macos_guarded(const char *path, const char *home)
{
    static const char *const folders[] = {
        "Desktop",
        "Documents",
        "Downloads",
        "Library/CloudStorage",     /* Dropbox, OneDrive, Google Drive */
        "Library/Mobile Documents", /* iCloud Drive */
    };
    static const char volumes[] = "/Volumes"; /* removable, or of a network */
    size_t n = home != NULL ? strlen(home) : 0;
    while (n > 0 && home[n - 1] == '/') {
        n--;
    }
    const char *rest = below(path, home, n);
    for (size_t i = 0; rest != NULL && i < countof(folders); i++) {
        if (below(rest, folders[i], strlen(folders[i])) != NULL) {
            return folders[i];
        }
    }
    return below(path, volumes, sizeof(volumes) - 1) != NULL ? volumes : NULL;
}
