#include "locations.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "devices.h"
#include "table.h"

CUdevice device_of_location(CUmemLocation location) {
    return location.type == LOCATION_LOCALITY_DOMAIN ? location.localized.device : location.id;
}

/* Managed memory of the host's comes to whichever GPU works on it. */
int gpu_of_location(CUmemLocation location, int type) {
    switch (location.type) {
        case LOCATION_DEVICE:
        case LOCATION_LOCALITY_DOMAIN:
            return gpu_of_device(device_of_location(location));
        case LOCATION_HOST:
        case LOCATION_HOST_NUMA:
        case LOCATION_HOST_NUMA_CURRENT:
            return type == ALLOCATION_MANAGED ? ANYWHERE : ON_HOST;
        case LOCATION_NONE:
            return ANYWHERE;
        default:
            return NOBODY_KNOWS;
    }
}

/* Said once: a program that asks for such memory asks for it again. */
static CUresult refuse_unknown(int type) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        fprintf(stderr, "aliquot: memory was refused: nobody here knows on which GPU a location of type %d is\n", type);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult location_refused(CUmemLocation location, int type) {
    int gpu = gpu_of_location(location, type);
    if (gpu == NOBODY_KNOWS) return refuse_unknown(location.type);
    return gpu == NOT_GRANTED ? device_refused(device_of_location(location)) : CUDA_ERROR_INVALID_VALUE;
}

/* Drivers since CUDA 13 say it. A domain's device is told as the identifier, which is its first byte, too. */
static bool told_location(CUmemoryPool pool, CUmemLocation *location, int *type) {
    return REAL(cuMemPoolGetAttribute)(pool, ATTRIBUTE_POOL_LOCATION_TYPE, &location->type) == CUDA_SUCCESS &&
           REAL(cuMemPoolGetAttribute)(pool, ATTRIBUTE_POOL_LOCATION_ID, &location->id) == CUDA_SUCCESS &&
           REAL(cuMemPoolGetAttribute)(pool, ATTRIBUTE_POOL_TYPE, type) == CUDA_SUCCESS;
}

/* Which program gets whose pool no older driver tells; but which pools are a device's. */
static bool is_pool_of(CUmemoryPool pool, CUdevice device) {
    CUmemoryPool default_one = NULL, present = NULL;
    REAL(cuDeviceGetDefaultMemPool)(&default_one, device);
    REAL(cuDeviceGetMemPool)(&present, device);
    return pool == default_one || pool == present;
}

int gpu_of_pool(CUmemoryPool pool, int otherwise) {
    CUmemLocation location = {0};
    int type = 0, count = 0;
    if (told_location(pool, &location, &type)) {
        int gpu = gpu_of_location(location, type);
        return gpu == ANYWHERE ? otherwise : gpu;
    }
    REAL(cuDeviceGetCount)(&count);
    for (CUdevice device = 0; device < count; device++)
        if (is_pool_of(pool, device)) return gpu_of_device(device);
    return otherwise;
}
