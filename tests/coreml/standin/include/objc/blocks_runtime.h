/* GNUstep's headers ask for this one where blocks are on; Debian's compilers
 * have it from libblocksruntime-dev under another name. */
#include <Block.h>
