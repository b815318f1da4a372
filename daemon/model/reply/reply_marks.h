/* reply_marks.h - marks that are spelled in more than one table. */
#pragma once

/* DeepSeek's bars and blanks. */
#define DS(text)  "<\xEF\xBD\x9C" text "\xEF\xBD\x9C>"
#define DS_CALLS  "tool\xE2\x96\x81" "calls\xE2\x96\x81"
#define DS_CALL   "tool\xE2\x96\x81" "call\xE2\x96\x81"
#define DS_SEP    DS("tool\xE2\x96\x81sep")
