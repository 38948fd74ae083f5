/* How much device memory code and variables take, by what is written in a cubin. No clock, no driver. */
#ifndef ALIQUOT_WEIGHTS_H
#define ALIQUOT_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#define UNKNOWN_WEIGHT UINT64_MAX /* it can't be told, so nobody may load it */

bool is_cubin(const void *content);

/* Of a cubin that lies in as many bytes, with its variables. */
uint64_t cubin_bytes(const unsigned char *image, uint64_t size);

/* Which GPUs it is for, as 90: the two places where compilers of several years write it, of which the other may hold a number
 * too small to be one. False if it is no cubin, or neither says anything. */
bool cubin_machines(const unsigned char *image, uint64_t size, unsigned *first, unsigned *second);

/* How long a cubin is: as far as its tables and what they name go. */
uint64_t cubin_length(const unsigned char *image);

#endif
