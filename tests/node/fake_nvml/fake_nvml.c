/* NVIDIA's management library as far as Aliquot calls it, answering from a state file. README.md says what and how.
 *
 * Theory of operation. Every function is enter(), its answer, leave(). enter() takes the one lock, reads the state file
 * again if it changed, writes the log line, checks that the library is initialised and that the handle is of this
 * initialisation and not lost, and waits out a `slow` rule with the lock released; leave() gives the lock back.
 * What must always hold: no answer is given outside the lock, and `inside` counts the calls between the two, so that a
 * shutdown beside a call in flight (a use after free in the real library) is seen and logged. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, VERSION_MISMATCH = 25,
};

#define MAX_HANDLES 4096
#define MAX_SETS 64
#define POLL_MS 5

struct handle { char uuid[NAME_SIZE]; unsigned generation; bool lost; };

struct event_set { bool used; unsigned long long seen, types[MAX_GPUS]; char uuid[MAX_GPUS][NAME_SIZE]; int registered; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct state state;
static struct handle handles[MAX_HANDLES];
static struct event_set sets[MAX_SETS];
static int handle_count, references, inside;
static unsigned generation;
static const char *state_path, *log_path;

/* Read once: a thread that still hangs here when the next test sets its own paths must not write into that test's log. */
__attribute__((constructor)) static void read_environment(void) {
    const char *state_from = getenv("FAKE_NVML_STATE"), *log_to = getenv("FAKE_NVML_LOG");
    state_path = state_from ? strdup(state_from) : NULL;
    log_path = log_to ? strdup(log_to) : NULL;
}

static void note(const char *format, const char *what, int gpu) {
    if (!log_path) return;
    int file = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    dprintf(file, format, (int)syscall(SYS_gettid), what, gpu);
    close(file);
}

static void pause_ms(long ms) {
    pthread_mutex_unlock(&lock);
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
    pthread_mutex_lock(&lock);
}

static long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static const struct instance *instance_by_uuid(const char *uuid) {
    for (int i = 0; i < state.instances; i++)
        if (strcmp(state.instance[i].uuid, uuid) == 0) return &state.instance[i];
    return NULL;
}

/* A GPU by its uuid, or that of which an instance has it. */
static int gpu_by_uuid(const char *uuid) {
    for (int i = 0; i < state.gpus; i++)
        if (strcmp(state.gpu[i].uuid, uuid) == 0) return i;
    const struct instance *instance = instance_by_uuid(uuid);
    return instance ? instance->gpu : -1;
}

/* The instance that a handle stands for; NULL if it is a GPU's. The handle was checked. */
static const struct instance *instance_of(const void *device) {
    return instance_by_uuid(((const struct handle *)device)->uuid);
}

static void refresh(void) {
    state_refresh(state_path, &state);
    for (int i = 0; i < handle_count; i++) {
        int gpu = gpu_by_uuid(handles[i].uuid);
        if (handles[i].generation == generation && (gpu < 0 || state.gpu[gpu].lost)) handles[i].lost = true;
    }
}

/* Is this one of our handles, of this initialisation, and its GPU still there? */
static int check(const void *device, int *gpu) {
    const struct handle *h = device;
    if (h < handles || h >= handles + handle_count || h->generation != generation) return INVALID_ARGUMENT;
    *gpu = gpu_by_uuid(h->uuid);
    return h->lost || *gpu < 0 ? GPU_IS_LOST : OK;
}

static void wait_slow(const char *function, int gpu) {
    long began = now_ms();
    const struct rule *r;
    while ((r = state_rule(&state, true, function, gpu)) && now_ms() - began < r->value) {
        pause_ms(POLL_MS);
        refresh();
    }
}

/* Leaves the lock taken, whatever it returns: every enter() has one leave(). */
static int enter(const char *function, const void *device, int *gpu) {
    pthread_mutex_lock(&lock);
    inside++;
    refresh();
    int result = references == 0 ? UNINITIALIZED : device ? check(device, gpu) : OK;
    note("%d %s %d\n", function, *gpu);
    if (references) wait_slow(function, *gpu);
    const struct rule *fault = state_rule(&state, false, function, *gpu);
    return result == OK && fault ? (int)fault->value : result;
}

static int leave(int result) {
    inside--;
    pthread_mutex_unlock(&lock);
    return result;
}

/* A function about one GPU: `g` is its state and the body gives the return code. */
#define DEVICE_CALL(NAME, ARGUMENTS, ...)                             \
    int NAME ARGUMENTS {                                              \
        int gpu = -1, result = enter(#NAME, device, &gpu);            \
        if (result == OK && !device) result = INVALID_ARGUMENT;       \
        if (result != OK) return leave(result);                       \
        struct gpu *g = &state.gpu[gpu];                              \
        (void)g;                                                      \
        __VA_ARGS__                                                   \
    }

/* The same, of what the driver tells of GPUs and not of their instances. */
#define CARD_CALL(NAME, ARGUMENTS, ...)                               \
    DEVICE_CALL(NAME, ARGUMENTS, {                                    \
        if (instance_of(device)) return leave(INVALID_ARGUMENT);      \
        __VA_ARGS__                                                   \
    })

/* A function about the whole system. */
#define SYSTEM_CALL(NAME, ARGUMENTS, ...)                             \
    int NAME ARGUMENTS {                                              \
        int gpu = -1, result = enter(#NAME, NULL, &gpu);              \
        if (result != OK) return leave(result);                       \
        __VA_ARGS__                                                   \
    }

static int text(const char *from, char *into, unsigned size) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(into, from);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    inside++;
    refresh();
    note("%d %s %d\n", "nvmlInitWithFlags", -1);
    wait_slow("nvmlInitWithFlags", -1);
    if (!*state.driver) return leave(DRIVER_NOT_LOADED);
    if (state.init != OK) return leave(state.init);
    if (references++ == 0) {
        generation++;
        memset(sets, 0, sizeof sets);
    }
    return leave(OK);
}

SYSTEM_CALL(nvmlShutdown, (void), {
    if (inside > 1) note("VIOLATION %d %s beside %d other calls\n", "nvmlShutdown", inside - 1);
    references--;
    return leave(OK);
})

const char *nvmlErrorString(int result) {
    static __thread char words[64];
    snprintf(words, sizeof words, "fake NVML error %d", result);
    return words;
}

SYSTEM_CALL(nvmlSystemGetDriverVersion, (char *version, unsigned size), { return leave(text(state.driver, version, size)); })
SYSTEM_CALL(nvmlSystemGetNVMLVersion, (char *version, unsigned size), { return leave(text(state.nvml, version, size)); })
SYSTEM_CALL(nvmlSystemGetCudaDriverVersion_v2, (int *version), { *version = state.cuda; return leave(OK); })
SYSTEM_CALL(nvmlDeviceGetCount_v2, (unsigned *count), { *count = state.gpus; return leave(OK); })

static struct handle *handle_of(const char *uuid) {
    for (int i = 0; i < handle_count; i++)
        if (handles[i].generation == generation && strcmp(handles[i].uuid, uuid) == 0) return &handles[i];
    if (handle_count == MAX_HANDLES) return NULL;
    struct handle *h = &handles[handle_count++];
    h->generation = generation;
    strcpy(h->uuid, uuid);
    return h;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    int gpu = index < MAX_GPUS ? (int)index : -1, result = enter("nvmlDeviceGetHandleByIndex_v2", NULL, &gpu);
    if (result != OK) return leave(result);
    if (index >= (unsigned)state.gpus) return leave(INVALID_ARGUMENT);
    struct handle *h = handle_of(state.gpu[index].uuid);
    refresh();
    *device = h;
    return leave(!h ? INVALID_ARGUMENT : h->lost || state.gpu[index].lost ? GPU_IS_LOST : OK);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    int gpu = gpu_by_uuid(uuid), result = enter("nvmlDeviceGetHandleByUUID", NULL, &gpu);
    if (result != OK) return leave(result);
    if (gpu_by_uuid(uuid) < 0) return leave(NOT_FOUND);
    *device = handle_of(uuid);
    return leave(*device ? OK : INVALID_ARGUMENT);
}

/* A GPU's compute mode outlives every process that set it: it lies beside the state, in a file of its own. */
static void compute_mode_path(const char *uuid, char *path, unsigned size) {
    snprintf(path, size, "%s.compute-%s", state_path, uuid);
}

DEVICE_CALL(nvmlDeviceGetComputeMode, (void *device, unsigned *mode), {
    char path[4096];
    compute_mode_path(g->uuid, path, sizeof path);
    FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%u", mode) != 1) *mode = 0;
    if (file) fclose(file);
    return leave(OK);
})

DEVICE_CALL(nvmlDeviceSetComputeMode, (void *device, unsigned mode), {
    char path[4096];
    compute_mode_path(g->uuid, path, sizeof path);
    FILE *file = mode > 3 ? NULL : fopen(path, "we");
    if (!file) return leave(INVALID_ARGUMENT);
    fprintf(file, "%u\n", mode);
    fclose(file);
    return leave(OK);
})

DEVICE_CALL(nvmlDeviceGetName, (void *device, char *name, unsigned size), {
    const struct instance *i = instance_of(device);
    return leave(text(i ? i->name : g->name, name, size));
})
DEVICE_CALL(nvmlDeviceGetUUID, (void *device, char *uuid, unsigned size), {
    const struct instance *i = instance_of(device);
    return leave(text(i ? i->uuid : g->uuid, uuid, size));
})
CARD_CALL(nvmlDeviceGetMinorNumber, (void *device, unsigned *minor), { *minor = g->minor; return leave(OK); })

DEVICE_CALL(nvmlDeviceGetCudaComputeCapability, (void *device, int *major, int *minor), {
    *major = g->major_cc;
    *minor = g->minor_cc;
    return leave(OK);
})

struct pci_info { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

DEVICE_CALL(nvmlDeviceGetPciInfo_v3, (void *device, struct pci_info *pci), {
    memset(pci, 0, sizeof *pci);
    sscanf(g->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF, pci->device & 0xFF);
    return leave(text(g->pci, pci->bus_id, sizeof pci->bus_id));
})

static bool runs_on(const struct process *p, int gpu, const struct instance *instance) {
    return p->gpu == gpu && (!instance || (p->instance >= 0 && &state.instance[p->instance] == instance));
}

static unsigned long long used_by_processes(int gpu, const struct instance *instance) {
    unsigned long long sum = 0;
    for (int i = 0; i < state.processes; i++)
        if (runs_on(&state.process[i], gpu, instance) && state.process[i].memory != ~0ULL) sum += state.process[i].memory;
    return sum;
}

struct memory_v1 { unsigned long long total, free, used; };

DEVICE_CALL(nvmlDeviceGetMemoryInfo, (void *device, struct memory_v1 *memory), {
    const struct instance *i = instance_of(device);
    memory->total = i ? i->total : g->total;
    memory->used = (i ? i->reserved : g->reserved) + used_by_processes(gpu, i);
    memory->free = memory->total - memory->used;
    return leave(OK);
})

CARD_CALL(nvmlDeviceGetUtilizationRates, (void *device, unsigned *rates), {
    if (g->mig > 0) return leave(NOT_SUPPORTED);
    rates[0] = g->util;
    rates[1] = 0;
    return leave(OK);
})

CARD_CALL(nvmlDeviceGetTemperature, (void *device, unsigned sensor, unsigned *degrees), {
    *degrees = g->temperature;
    return leave(sensor ? INVALID_ARGUMENT : OK);
})

CARD_CALL(nvmlDeviceGetPowerUsage, (void *device, unsigned *milliwatts), { *milliwatts = g->power; return leave(OK); })

CARD_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, (void *device, unsigned long long *reasons), {
    *reasons = g->throttle;
    return leave(OK);
})

DEVICE_CALL(nvmlDeviceGetMigMode, (void *device, unsigned *current, unsigned *pending), {
    *current = g->mig > 0;
    *pending = g->mig_wanted > 0;
    return leave(g->mig < 0 ? NOT_SUPPORTED : OK);
})

CARD_CALL(nvmlDeviceGetMaxMigDeviceCount, (void *device, unsigned *count), {
    *count = g->mig > 0 ? g->slices : 0;
    return leave(OK);
})

CARD_CALL(nvmlDeviceGetMigDeviceHandleByIndex, (void *device, unsigned index, void **instance), {
    if (g->mig <= 0 || index >= (unsigned)g->slices) return leave(INVALID_ARGUMENT);
    for (int i = 0; i < state.instances; i++) {
        if (state.instance[i].gpu != gpu || state.instance[i].slot != (int)index) continue;
        *instance = handle_of(state.instance[i].uuid);
        return leave(*instance ? OK : INVALID_ARGUMENT);
    }
    return leave(NOT_FOUND);
})

struct attributes { unsigned processors, shared_engines[5], slices, used_slices; unsigned long long memory_mb; };

DEVICE_CALL(nvmlDeviceGetAttributes_v2, (void *device, struct attributes *attributes), {
    const struct instance *i = instance_of(device);
    if (!i) return leave(NOT_SUPPORTED);
    *attributes = (struct attributes){.slices = i->slices, .used_slices = i->used_slices, .memory_mb = i->total >> 20};
    return leave(OK);
})

DEVICE_CALL(nvmlDeviceGetGpuInstanceId, (void *device, unsigned *id), {
    const struct instance *i = instance_of(device);
    *id = i ? i->gi : 0;
    return leave(i ? OK : NOT_SUPPORTED);
})

DEVICE_CALL(nvmlDeviceGetComputeInstanceId, (void *device, unsigned *id), {
    const struct instance *i = instance_of(device);
    *id = i ? i->ci : 0;
    return leave(i ? OK : NOT_SUPPORTED);
})

struct profile { unsigned id, peers, slices, rest[7]; unsigned long long memory_mb; };

/* The kinds of instances by NVML's numbers; a card of 4 slices is not cut into 3 or 7. */
CARD_CALL(nvmlDeviceGetGpuInstanceProfileInfo, (void *device, unsigned number, struct profile *profile), {
    static const int slices[] = {1, 2, 3, 4, 7};
    int here = number < 5 ? slices[number] : 0;
    if (number >= 0x12) return leave(INVALID_ARGUMENT);
    if (g->mig <= 0 || !here || here > g->slices || (g->slices == 4 && here == 3)) return leave(NOT_SUPPORTED);
    *profile = (struct profile){.id = number, .slices = here};
    return leave(OK);
})

DEVICE_CALL(nvmlDeviceGetMemoryAffinity, (void *device, unsigned words, unsigned long *nodes, unsigned scope), {
    (void)scope;
    memset(nodes, 0, words * sizeof *nodes);
    if (g->numa >= 0) nodes[g->numa / 64] = 1UL << g->numa % 64;
    return leave(g->numa < 0 ? NOT_SUPPORTED : OK);
})

struct process_info { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };

static int list_processes(
    int gpu, const struct instance *instance, enum process_kind kind, unsigned *count, struct process_info *into) {
    unsigned room = *count, found = 0;
    for (int i = 0; i < state.processes; i++) {
        const struct process *p = &state.process[i];
        if (!runs_on(p, gpu, instance) || p->kind != kind) continue;
        const struct instance *on = p->instance < 0 ? NULL : &state.instance[p->instance];
        if (into && found < room)
            into[found] = (struct process_info){p->pid, p->memory, on ? (unsigned)on->gi : ~0U, on ? (unsigned)on->ci : ~0U};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

#define LIST_CALL(NAME, KIND) \
    DEVICE_CALL(NAME, (void *device, unsigned *count, struct process_info *into), \
                { return leave(list_processes(gpu, instance_of(device), KIND, count, into)); })

LIST_CALL(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE)
LIST_CALL(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS)

struct sample { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; };

CARD_CALL(nvmlDeviceGetProcessUtilization, (void *device, struct sample *into, unsigned *count, unsigned long long since), {
    if (g->mig > 0) return leave(NOT_SUPPORTED);
    unsigned found = 0;
    for (int i = 0; i < state.processes; i++) {
        const struct process *p = &state.process[i];
        if (p->gpu != gpu || p->sm == 0 || p->at <= since) continue;
        if (into && found < *count) into[found] = (struct sample){.pid = p->pid, .at = p->at, .sm = p->sm};
        found++;
    }
    bool fits = into && found <= *count;
    *count = found;
    return leave(found == 0 ? NOT_FOUND : fits ? OK : INSUFFICIENT_SIZE);
})

static const struct link *link_between(int a, int b) {
    for (int i = 0; i < state.links; i++) {
        const struct link *l = &state.link[i];
        if ((l->a == a && l->b == b) || (l->a == b && l->b == a)) return l;
    }
    return NULL;
}

/* NVLinks are numbered: those into a switch first, then peer by peer. -1: no such link; MAX_GPUS: a switch. */
static int peer_of(int gpu, unsigned number) {
    if (number < (unsigned)state.gpu[gpu].switch_links) return MAX_GPUS;
    number -= state.gpu[gpu].switch_links;
    for (int peer = 0; peer < state.gpus; peer++) {
        const struct link *l = peer == gpu ? NULL : link_between(gpu, peer);
        if (!l) continue;
        if (number < (unsigned)l->nvlinks) return peer;
        number -= l->nvlinks;
    }
    return -1;
}

DEVICE_CALL(nvmlDeviceGetNvLinkState, (void *device, unsigned number, unsigned *active), {
    if (peer_of(gpu, 0) < 0) return leave(NOT_SUPPORTED);
    *active = 1;
    return leave(peer_of(gpu, number) < 0 ? INVALID_ARGUMENT : OK);
})

DEVICE_CALL(nvmlDeviceGetNvLinkRemotePciInfo_v2, (void *device, unsigned number, struct pci_info *pci), {
    int peer = peer_of(gpu, number);
    memset(pci, 0, sizeof *pci);
    return leave(peer < 0 ? INVALID_ARGUMENT
                          : text(peer == MAX_GPUS ? "00000000:FF:00.0" : state.gpu[peer].pci, pci->bus_id, sizeof pci->bus_id));
})

DEVICE_CALL(nvmlDeviceGetTopologyCommonAncestor, (void *device, void *other, unsigned *level), {
    int peer;
    result = check(other, &peer);
    if (result != OK) return leave(result);
    const struct link *l = link_between(gpu, peer);
    *level = l ? (unsigned)l->topology : 50;
    return leave(OK);
})

static struct event_set *set_of(void *handle) {
    struct event_set *set = handle;
    return set >= sets && set < sets + MAX_SETS && set->used ? set : NULL;
}

static unsigned long long last_event(void) {
    unsigned long long last = 0;
    for (int i = 0; i < state.events; i++)
        if (state.event[i].number > last) last = state.event[i].number;
    return last;
}

SYSTEM_CALL(nvmlEventSetCreate, (void **handle), {
    for (int i = 0; i < MAX_SETS; i++) {
        if (sets[i].used) continue;
        memset(&sets[i], 0, sizeof sets[i]);
        sets[i].used = true;
        sets[i].seen = last_event();
        *handle = &sets[i];
        return leave(OK);
    }
    note("VIOLATION %d %s: %d sets were never freed\n", "nvmlEventSetCreate", MAX_SETS);
    return leave(INSUFFICIENT_SIZE);
})

SYSTEM_CALL(nvmlEventSetFree, (void *handle), {
    struct event_set *set = set_of(handle);
    if (!set) return leave(INVALID_ARGUMENT);
    set->used = false;
    return leave(OK);
})

DEVICE_CALL(nvmlDeviceGetSupportedEventTypes, (void *device, unsigned long long *types), { *types = g->events; return leave(OK); })

DEVICE_CALL(nvmlDeviceRegisterEvents, (void *device, unsigned long long types, void *handle), {
    struct event_set *set = set_of(handle);
    if (!set || set->registered == MAX_GPUS) return leave(INVALID_ARGUMENT);
    if (types & ~g->events) return leave(NOT_SUPPORTED);
    strcpy(set->uuid[set->registered], g->uuid);
    set->types[set->registered++] = types;
    return leave(OK);
})

struct event_data { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

/* The next event of a set: OK with its data, TIMEOUT if there is none, GPU_IS_LOST if a registered GPU is gone. */
static int next_event(struct event_set *set, struct event_data *data) {
    for (int i = 0; i < state.events; i++) {
        const struct event *e = &state.event[i];
        if (e->number <= set->seen) continue;
        set->seen = e->number;
        const char *uuid = e->gpu < 0 || e->gpu >= state.gpus ? NULL : state.gpu[e->gpu].uuid;
        for (int r = 0; r < set->registered; r++) {
            if ((uuid && strcmp(set->uuid[r], uuid) != 0) || !(set->types[r] & e->type)) continue;
            *data = (struct event_data){uuid ? handle_of(uuid) : NULL, e->type, e->data, ~0U, ~0U};
            return OK;
        }
    }
    for (int r = 0; r < set->registered; r++) {
        struct handle *h = handle_of(set->uuid[r]);
        if (!h || h->lost) return GPU_IS_LOST;
    }
    return TIMEOUT;
}

int nvmlEventSetWait_v2(void *handle, struct event_data *data, unsigned timeout_ms) {
    int gpu = -1, result = enter("nvmlEventSetWait_v2", NULL, &gpu);
    long end = now_ms() + timeout_ms;
    while (result == OK) {
        struct event_set *set = references ? set_of(handle) : NULL;
        result = set ? next_event(set, data) : INVALID_ARGUMENT;
        if (result != TIMEOUT || now_ms() >= end) break;
        pause_ms(POLL_MS);
        refresh();
        result = OK;
    }
    return leave(result);
}

#ifndef FAKE_NVML_OLD /* what drivers before about r510 lack */

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

DEVICE_CALL(nvmlDeviceGetMemoryInfo_v2, (void *device, struct memory_v2 *memory), {
    if (memory->version != 0x02000028) return leave(VERSION_MISMATCH);
    const struct instance *i = instance_of(device);
    unsigned long long used = used_by_processes(gpu, i);
    memory->total = i ? i->total : g->total;
    memory->reserved = i ? i->reserved : g->reserved;
    memory->free = memory->total - memory->reserved - used;
    memory->used = used + (state.used_includes_reserved ? memory->reserved : 0);
    return leave(OK);
})

struct temperature_v1 { unsigned version, sensor; int degrees; };

CARD_CALL(nvmlDeviceGetTemperatureV, (void *device, struct temperature_v1 *temperature), {
    if (temperature->version != 0x0100000C) return leave(VERSION_MISMATCH);
    temperature->degrees = g->temperature;
    return leave(OK);
})

CARD_CALL(nvmlDeviceGetCurrentClocksEventReasons, (void *device, unsigned long long *reasons), {
    *reasons = g->throttle;
    return leave(OK);
})

DEVICE_CALL(nvmlDeviceGetArchitecture, (void *device, unsigned *architecture), { *architecture = g->arch; return leave(OK); })

DEVICE_CALL(nvmlDeviceGetNvLinkRemoteDeviceType, (void *device, unsigned number, unsigned *type), {
    int peer = peer_of(gpu, number);
    *type = peer == MAX_GPUS ? 2 : 0;
    return leave(peer < 0 ? INVALID_ARGUMENT : OK);
})

LIST_CALL(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE)
LIST_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS)
LIST_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS)

#endif
