/* What is packed in a fat binary, unpacked: LZ4 (a block, as CUDA 12 packs) and zstd (one frame, as CUDA 13 does).
 *
 * No clock, no driver. Whoever packed it may be hostile: nothing is read or written outside of what is given, and what is
 * not understood is refused, for what the driver would make of it nobody knows. */
#ifndef ALIQUOT_UNPACK_H
#define ALIQUOT_UNPACK_H

#include <stdbool.h>
#include <stdint.h>

/* Exactly `size` bytes; false if it is another number of them, or no such packing. Zeros may follow what is packed. */
bool unpack_lz4(unsigned char *to, uint64_t size, const unsigned char *from, uint64_t packed);
bool unpack_zstd(unsigned char *to, uint64_t size, const unsigned char *from, uint64_t packed);

#endif
