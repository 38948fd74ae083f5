/* Whose memory it is, by what a call says of where it is to lie. */
#ifndef ALIQUOT_LOCATIONS_H
#define ALIQUOT_LOCATIONS_H

#include "driver.h"

/* No GPU of the slice's. Who has memory of the host's is charged for nothing; of what lies anywhere, as managed memory may,
 * the call itself does not tell. */
enum { NOT_GRANTED = -1, ON_HOST = -2, ANYWHERE = -3, NOBODY_KNOWS = -4 };

/* The GPU of a location for memory of a type (ALLOCATION_PINNED or not), or one of these. */
int gpu_of_location(CUmemLocation location, int type);

/* The device of a location on one. */
CUdevice device_of_location(CUmemLocation location);

/* What a call is answered whose memory would lie where it can't be charged. */
CUresult location_refused(CUmemLocation location, int type);

/* The pool's own GPU, ON_HOST or NOBODY_KNOWS; `otherwise`, where no driver's answer tells. */
int gpu_of_pool(CUmemoryPool pool, int otherwise);

#endif
