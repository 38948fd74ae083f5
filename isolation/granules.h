/* Which granules this process's blocks lie in: a granule is charged with its first block and released with its last.
 *
 * The driver packs small blocks into granules. Charging each by its own size would leave out what packing wastes (a
 * tenant could keep a thousand granules by one small block in each); charging a granule for each would refuse what fits. */
#ifndef ALIQUOT_GRANULES_H
#define ALIQUOT_GRANULES_H

#include <stdbool.h>
#include <stdint.h>

#define GRANULE (2ULL << 20) /* the driver takes device memory in pages of 2 MiB */
#define LARGEST_PACKED (GRANULE / 2) /* larger blocks have granules of their own */
#define LARGEST_SIZE (1ULL << 46) /* more is no size but an overflow on its way */
#define TO_GRANULES(bytes) (((bytes) + GRANULE - 1) & ~(GRANULE - 1))

/* Enter a block of that GPU; the bytes of granules that no other block of it lies in. */
uint64_t granules_enter(uint64_t address, uint64_t bytes, int gpu);

/* Take a block of that GPU out; the bytes of granules that it was the last of them in. */
uint64_t granules_leave(uint64_t address, uint64_t bytes, int gpu);

/* Whether a block of this size may still find room in a granule that is charged already. */
bool granules_have_gap(uint64_t bytes, int gpu);

#endif
