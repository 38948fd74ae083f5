/* How much device memory the code and variables of an image take. */
#ifndef ALIQUOT_IMAGES_H
#define ALIQUOT_IMAGES_H

#include <stdint.h>

/* Of an image in memory: a cubin (ELF), a fat binary, or PTX as text. */
uint64_t image_bytes(const void *image);

/* Of an image in a file; 0 if it can't be read, and then the driver will say so. */
uint64_t image_file_bytes(const char *path);

#endif
