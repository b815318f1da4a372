/* What macOS keeps from background programs, and whether launchd runs us: text
 * alone, so it is tested everywhere. */
#include "../unit.h"
#include "base/macos.h"

static void folders_that_are_kept(void **state)
{
    (void)state;
    static const struct {
        const char *path, *home, *folder;
    } t[] = {
        {"/Users/u/Documents",                                   "/Users/u",  "Documents"},
        {"/Users/u/Documents/m/a.gguf",                          "/Users/u/", "Documents"},
        {"/Users/u/documents/a.gguf",                            "/Users/u",  "Documents"},
        {"/Users/u/Desktop/a.gguf",                              "/Users/u",  "Desktop"  },
        {"/Users/u/Downloads/a.gguf",                            "/Users/u",  "Downloads"},
        {"/Users/u/Library/Mobile Documents/x",                  "/Users/u",
         "Library/Mobile Documents"                                                      },
        {"/Users/u/Library/CloudStorage/b/x",                    "/Users/u",
         "Library/CloudStorage"                                                          },
        {"/Volumes/Stick/a.gguf",                                "/Users/u",  "/Volumes" },
        {"/Volumes/Stick/a.gguf",                                NULL,        "/Volumes" },
        {"/Users/u/DocumentsOfMine/a.gguf",                      "/Users/u",  NULL       },
        {"/Users/u/models/Documents/a.gguf",                     "/Users/u",  NULL       },
        {"/Users/us/Documents/a.gguf",                           "/Users/u",  NULL       },
        {"/Users/u/Library/Application Support/dev.aned.daemon", "/Users/u",
         NULL                                                                            },
        {"/Users/u/Documents/a.gguf",                            NULL,        NULL       },
        {"/Users/u/Documents/a.gguf",                            "",          NULL       },
        {"/VolumesOfMine/a.gguf",                                "/Users/u",  NULL       },
        {"/",                                                    "/",         NULL       },
    };
    for (size_t i = 0; i < countof(t); i++) {
        const char *got = macos_guarded(t[i].path, t[i].home);
        if (t[i].folder == NULL
                ? got != NULL
                : got == NULL || strcmp(got, t[i].folder) != 0) {
            fail_msg("%s: %s", t[i].path, got != NULL ? got : "none");
        }
    }
}

static void launchd_s_names(void **state)
{
    (void)state;
    assert_true(macos_is_service("dev.aned.daemon"));
    assert_true(macos_is_service("homebrew.mxcl.aned"));
    assert_false(macos_is_service(NULL));
    assert_false(macos_is_service(""));
    assert_false(macos_is_service("0"));
    assert_false(macos_is_service("application.com.apple.Terminal.1152921500"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_that_are_kept),
        cmocka_unit_test(launchd_s_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
