/* How much device memory the code and variables of an image take.
 *
 * What was weighed has to be what the driver reads. So it gets a copy of ours, that no other thread and no other writer
 * of the file changes. Only a fat binary in memory (or what is neither cubin nor text) is read where it lies: those of
 * large libraries are gigabytes, that nobody would have once more in each process. */
#ifndef ALIQUOT_IMAGES_H
#define ALIQUOT_IMAGES_H

#include <stdint.h>

#include "driver.h"

struct image {
    const void *content; /* for the driver */
    void *copy;          /* ours to free, or NULL */
    uint64_t bytes;
};

/* Of an image in memory: a cubin (ELF), a fat binary, or PTX as text. */
CUresult image_in_memory(struct image *image, const void *content);

/* Of an image in a file. */
CUresult image_in_file(struct image *image, const char *path);

void image_free(const struct image *image);

#endif
