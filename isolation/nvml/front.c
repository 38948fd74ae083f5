/* Stands in front of the driver's libnvidia-ml.so.1, so that tools in the container see its slice: memory as limits and
 * account have it, and the container's own processes.
 *
 * How it works. This library depends on the driver's by its path. A look-up of a function that is not here goes on to
 * what the library depends on, and so finds the driver's: nothing is copied, and functions of tomorrow are there too.
 * What must hold: what is here answers with the driver's own codes for whatever it does not know. A GPU that is not of
 * the slice, a driver that fails, and a container without limits are answered by the driver alone. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "account.h"
#include "limits.h"
#include "processes.h"

#define EXPORT __attribute__((visibility("default")))
#define UUID_SIZE 96

enum { OK = 0, INSUFFICIENT_SIZE = 7, FUNCTION_NOT_FOUND = 13 };

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process_v1 { unsigned pid; unsigned long long memory; };
struct process_v2 { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };

static void *driver;
static bool ready;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_all(void) {
    driver = dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL);
    ready = limits_open() && account_open();
}

static void *of_driver(const char *name) {
    pthread_once(&once, open_all);
    return driver ? dlsym(driver, name) : NULL;
}

/* "GPU-" and 32 digits with dashes between; false for anything else, such as a MIG device. */
static bool parse(const char *text, unsigned char into[16]) {
    if (strncmp(text, "GPU-", 4) != 0) return false;
    text += 4;
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (*text == '-') text++;
        if (sscanf(text, "%2x", &byte) != 1) return false;
        into[i] = (unsigned char)byte;
        text += 2;
    }
    return *text == '\0';
}

/* Which GPU of the slice it is, or -1. */
static int gpu_of(void *device) {
    char text[UUID_SIZE];
    unsigned char uuid[16];
    int (*told)(void *, char *, unsigned) = of_driver("nvmlDeviceGetUUID");
    if (!ready || !told || told(device, text, sizeof text) != OK || !parse(text, uuid)) return -1;
    for (uint32_t gpu = 0; gpu < limits->gpus; gpu++)
        if (memcmp(limits->gpu[gpu].uuid, uuid, sizeof uuid) == 0) return (int)gpu;
    return -1;
}

static struct memory slice(int gpu, unsigned long long total) {
    unsigned long long limit = limits->gpu[gpu].memory, held = account_held(gpu);
    struct memory seen = {.total = limit < total ? limit : total};
    seen.used = held < seen.total ? held : seen.total;
    seen.free = seen.total - seen.used;
    return seen;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    int (*ask)(void *, struct memory *) = of_driver("nvmlDeviceGetMemoryInfo");
    int result = ask ? ask(device, memory) : FUNCTION_NOT_FOUND, gpu = result == OK ? gpu_of(device) : -1;
    if (gpu >= 0) *memory = slice(gpu, memory->total);
    return result;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory);
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    int (*ask)(void *, struct memory_v2 *) = of_driver("nvmlDeviceGetMemoryInfo_v2");
    int result = ask ? ask(device, memory) : FUNCTION_NOT_FOUND, gpu = result == OK ? gpu_of(device) : -1;
    if (gpu < 0) return result;
    struct memory seen = slice(gpu, memory->total);
    memory->total = seen.total;
    memory->free = seen.free;
    memory->used = seen.used;
    /* What the driver keeps of the card is nobody's slice. */
    memory->reserved = 0;
    return result;
}

/* The container's processes on a GPU, as the account has them. `width` is that of the caller's struct. */
static int list(int gpu, unsigned *count, void *into, size_t width) {
    struct process_slot *slots = account_slots();
    unsigned room = *count, found = 0;
    uint32_t here = process_namespace();
    account_held(gpu); /* clears the dead away */
    for (int i = 0; i < MOST_PROCESSES; i++) {
        /* Pids of another namespace than the asker's would be anybody's to it. */
        if (!slots[i].born || slots[i].namespace != here || !slots[i].used[gpu]) continue;
        struct process_v2 one = {slots[i].pid, slots[i].used[gpu], ~0U, ~0U};
        if (into && found < room) memcpy((char *)into + found * width, &one, width);
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

/* Nobody is listed of the kinds that an account does not tell apart: what computes, is listed as computing. */
static int processes(const char *name, void *device, unsigned *count, void *into, size_t width, bool computing) {
    int (*ask)(void *, unsigned *, void *) = of_driver(name);
    if (!ask) return FUNCTION_NOT_FOUND;
    int gpu = count ? gpu_of(device) : -1;
    if (gpu < 0) return ask(device, count, into);
    if (computing) return list(gpu, count, into, width);
    *count = 0;
    return OK;
}

#define LIST(NAME, STRUCT, COMPUTING)                                                         \
    EXPORT int NAME(void *device, unsigned *count, struct STRUCT *into);                      \
    EXPORT int NAME(void *device, unsigned *count, struct STRUCT *into) {                     \
        return processes(#NAME, device, count, into, sizeof *into, COMPUTING);                \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, process_v1, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, process_v2, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, process_v2, true)
LIST(nvmlDeviceGetGraphicsRunningProcesses, process_v1, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, process_v2, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, process_v2, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, process_v1, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, process_v2, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, process_v2, false)
