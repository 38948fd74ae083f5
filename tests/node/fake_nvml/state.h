/* What the fake driver knows: the parsed state file. See README.md for its lines. */
#ifndef FAKE_NVML_STATE_H
#define FAKE_NVML_STATE_H

#include <stdbool.h>

#define MAX_GPUS 32
#define MAX_LINKS 1024
#define MAX_PROCESSES 8192
#define MAX_EVENTS 1024
#define MAX_RULES 64
#define MAX_INSTANCES 224
#define NAME_SIZE 96
#define ANY_GPU (-1)

struct gpu {
    char uuid[NAME_SIZE], name[NAME_SIZE], pci[32];
    unsigned long long total, reserved, events, throttle;
    int minor, major_cc, minor_cc, arch, numa, mig, mig_wanted, slices, switch_links, lost, temperature, power, util;
};

/* An instance of MIG: a compute instance in its GPU instance. */
struct instance {
    char uuid[NAME_SIZE], name[NAME_SIZE];
    unsigned long long total, reserved;
    int gpu, slot, gi, ci, slices, used_slices;
};

struct link { int a, b, nvlinks, topology; };

enum process_kind { COMPUTE, GRAPHICS, MPS };

/* `instance` is its line's number among the instances, -1 for none. */
struct process { int gpu, instance; unsigned pid, sm; enum process_kind kind; unsigned long long memory, at; };

struct event { unsigned long long number, type, data; int gpu; };

/* A fault (value: return code) or a slow call (value: milliseconds). */
struct rule { char function[NAME_SIZE]; int gpu; long value; bool slow; };

struct state {
    char driver[NAME_SIZE], nvml[NAME_SIZE];
    int cuda, init, used_includes_reserved;
    int gpus, instances, links, processes, events, rules;
    struct gpu gpu[MAX_GPUS];
    struct instance instance[MAX_INSTANCES];
    struct link link[MAX_LINKS];
    struct process process[MAX_PROCESSES];
    struct event event[MAX_EVENTS];
    struct rule rule[MAX_RULES];
};

/* Read `path` again if it changed; false if it is not there or not whole, and then `state` is as it was. */
bool state_refresh(const char *path, struct state *state);

/* The first rule of that sort for this function and GPU, or NULL. */
const struct rule *state_rule(const struct state *state, bool slow, const char *function, int gpu);

#endif
