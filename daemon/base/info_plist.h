/* info_plist.h - who a program without a bundle folder is, for macOS.
 *
 * macOS reads the section __TEXT,__info_plist of an executable like the
 * Info.plist of an application. The identifier stays the same over rebuilds, so
 * that a permission (a folder, a network volume) once given is not asked for
 * again, and so that code signing takes it as the identity. The texts are what
 * a user reads when the program first opens a file in one of these folders.
 *
 * A program has one INFO_PLIST, in a file that only macOS compiles.
 */
#pragma once

#if defined(__has_attribute)
#if __has_attribute(nonstring)
#define INFO_PLIST_TEXT __attribute__((nonstring))
#endif
#endif
#ifndef INFO_PLIST_TEXT
#define INFO_PLIST_TEXT
#endif

/* clang-format off */
#define INFO_PLIST_KEY(k, v) "<key>" k "</key>\n<string>" v "</string>\n"
#define INFO_PLIST_WHY "aned reads the model files that you ask it to convert."
#define INFO_PLIST_XML(id, name)                                           \
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"                         \
    "<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" "              \
    "\"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n"                \
    "<plist version=\"1.0\">\n<dict>\n"                                    \
    INFO_PLIST_KEY("CFBundleInfoDictionaryVersion", "6.0")                 \
    INFO_PLIST_KEY("CFBundleIdentifier", id)                               \
    INFO_PLIST_KEY("CFBundleName", name)                                   \
    INFO_PLIST_KEY("CFBundleExecutable", name)                             \
    INFO_PLIST_KEY("CFBundleVersion", ANED_VERSION)                        \
    INFO_PLIST_KEY("CFBundleShortVersionString", ANED_VERSION)             \
    INFO_PLIST_KEY("LSMinimumSystemVersion", "15.0")                       \
    INFO_PLIST_KEY("NSDesktopFolderUsageDescription", INFO_PLIST_WHY)      \
    INFO_PLIST_KEY("NSDocumentsFolderUsageDescription", INFO_PLIST_WHY)    \
    INFO_PLIST_KEY("NSDownloadsFolderUsageDescription", INFO_PLIST_WHY)    \
    INFO_PLIST_KEY("NSNetworkVolumesUsageDescription", INFO_PLIST_WHY)     \
    INFO_PLIST_KEY("NSRemovableVolumesUsageDescription", INFO_PLIST_WHY)   \
    "</dict>\n</plist>\n"
/* clang-format on */

/* Without the final NUL, which is no XML. */
#define INFO_PLIST(id, name)                                                \
    INFO_PLIST_TEXT                                                         \
    __attribute__((used, section("__TEXT,__info_plist"))) static const char \
        info_plist[sizeof(INFO_PLIST_XML(id, name)) - 1] =                  \
            INFO_PLIST_XML(id, name)
