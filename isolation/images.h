/* How much device memory the code and variables of an image take.
 *
 * What was weighed has to be what the driver reads. So it gets a copy of ours, that no other thread and no other writer
 * of the file changes. Only a large fat binary that lies in a file which is mapped to be read is left where it is: those
 * of large libraries are gigabytes, that nobody would have once more in each process. */
#ifndef ALIQUOT_IMAGES_H
#define ALIQUOT_IMAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

/* Ours to free, one after the other. */
struct copy {
    struct copy *next;
    _Alignas(16) unsigned char content[];
};

struct image {
    const void *content; /* for the driver */
    struct copy *copies;
    bool kept; /* a fat binary: as long as it is loaded the driver may come back to it, and so to its copies */
    uint64_t bytes;
};

/* Of an image in memory: a cubin (ELF), a fat binary, or PTX as text. */
CUresult image_in_memory(struct image *image, const void *content);

/* Of an image in a file. */
CUresult image_in_file(struct image *image, const char *path);

void copies_free(struct copy *copies);

#endif
