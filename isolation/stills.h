/* Whether memory stays as it is while nobody goes out of his way to change it. */
#ifndef ALIQUOT_STILLS_H
#define ALIQUOT_STILLS_H

#include <stdbool.h>
#include <stdint.h>

/* All of it lies in one map of a file, private and not to be written to: as linkers put fat binaries. */
bool lies_still(const void *from, uint64_t bytes);

#endif
