#include "limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "processes.h"
#include "table.h"

#define MAGIC "ALIQLIM1"
#define MOST_DEVICES 64

const struct limits *limits;

/* Of each device of the driver: the GPU's number plus two, or one for a GPU that was not granted; 0: not asked yet. */
static _Atomic int known[MOST_DEVICES];

static bool is_ours(const struct limits *file) {
    return memcmp(file->magic, MAGIC, sizeof file->magic) == 0 && file->version == 1 && file->gpus <= MOST_GPUS &&
           memchr(file->driver, '\0', sizeof file->driver) != NULL;
}

bool limits_open(void) {
    struct stat seen;
    int file = open(limits_path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && status_of_file(file, &seen) == 0 && seen.st_size >= (off_t)sizeof *limits)
        limits = mmap(NULL, sizeof *limits, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (limits && limits != MAP_FAILED && is_ours(limits)) return true;
    fprintf(stderr, "aliquot: no limits of this container at %s: %s\n", limits_path,
            file < 0 ? strerror(errno) : "not what the agent writes");
    limits = NULL;
    return false;
}

static int find(CUdevice device) {
    CUuuid uuid;
    CUresult told = REAL(cuDeviceGetUuid_v2)(&uuid, device);
    if (told != CUDA_SUCCESS) told = REAL(cuDeviceGetUuid)(&uuid, device);
    if (told != CUDA_SUCCESS) return -1;
    for (uint32_t gpu = 0; gpu < limits->gpus; gpu++)
        if (memcmp(limits->gpu[gpu].uuid, uuid.bytes, sizeof uuid.bytes) == 0) return (int)gpu;
    return -1;
}

int gpu_of_device(int device) {
    if (device < 0 || device >= MOST_DEVICES) return -1;
    int seen = known[device];
    if (seen == 0) known[device] = seen = find(device) + 2;
    return seen - 2;
}

int gpu_of_context(void) {
    CUdevice device;
    return REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS ? gpu_of_device(device) : -1;
}
