/* Fat binaries: code for several kinds of GPU, some of it packed, of which the driver loads what fits. */
#ifndef ALIQUOT_FAT_H
#define ALIQUOT_FAT_H

#include <stdbool.h>
#include <stdint.h>

bool is_fat(const void *content);

/* How long it is, by what its head says. */
uint64_t fat_length(const unsigned char *image);

/* What is loaded of one that lies in as many bytes takes at the most; UNKNOWN_WEIGHT if it can't be told. */
uint64_t fat_bytes(const unsigned char *image, uint64_t size);

/* The same, of a copy that may be changed: what can't be told of an entry leaves that one out, so that the driver does not
 * find it. UNKNOWN_WEIGHT if nothing that a GPU of the slice may load is left then. */
uint64_t fat_keep_known(unsigned char *image, uint64_t size);

#endif
