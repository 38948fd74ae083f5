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

#endif
