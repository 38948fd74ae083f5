/* What the driver packs where nobody sees it: small arrays, code and constants. Sizes are known, places are not.
 *
 * How full the driver's granules are after some of it was freed can't be told, so what was charged stays charged until
 * all of it is freed; what is put in again in between finds that room first. */
#ifndef ALIQUOT_STORES_H
#define ALIQUOT_STORES_H

#include <stdbool.h>
#include <stdint.h>

#define LARGEST_STORED (1ULL << 20) /* what is larger has granules of its own */

enum store { STORE_ARRAYS, STORE_CODE, STORES };

/* Enter so many bytes, LARGEST_STORED at most; false if the container may not hold them. */
bool store_enter(enum store store, int gpu, uint64_t bytes);
void store_leave(enum store store, int gpu, uint64_t bytes);

#endif
