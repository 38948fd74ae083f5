/* What the container may use. The agent writes this file; the container has it mounted read-only.
 *
 * The numbers of a GPU change while the container runs; each is one aligned word, so that a reader never sees half of
 * one. layout.txt has the layout. */
#ifndef ALIQUOT_LIMITS_H
#define ALIQUOT_LIMITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MOST_GPUS 16
#define PARTS_PER_MILLION 1000000ULL

struct gpu_limits {
    unsigned char uuid[16];
    _Atomic uint64_t memory;      /* bytes that the container may hold */
    _Atomic uint64_t unaccounted; /* bytes the agent sees it hold beyond what is in the account */
    _Atomic uint64_t context;     /* bytes that the driver takes for a context */
    _Atomic uint64_t guarantee;   /* of the GPU's time, in millionths */
    _Atomic uint64_t rate;        /* what it may use now: between guarantee and compute-limit */
    _Atomic uint64_t weight;      /* GPU time really used for each moment that work is in flight, in millionths */
    _Atomic uint64_t beat;        /* CLOCK_MONOTONIC in ns at which rate and weight were written; 0: never */
    uint64_t limit;               /* how far it may burst: the agent's own note */
    uint64_t reserved[6];
};

struct limits {
    char magic[8];
    uint32_t version, gpus;
    char driver[240];
    struct gpu_limits gpu[MOST_GPUS];
};

/* Where the two files lie: linked in, so that no variable of the environment can point elsewhere. */
extern const char limits_path[], account_path[];

extern const struct limits *limits;

/* Map the file; false, with the reason on standard error, if it is not there or not ours. */
bool limits_open(void);

/* The slice's GPU that a device of the driver is, or -1 if the container was granted no such GPU. */
int gpu_of_device(int device);

/* The GPU of the calling thread's context, or -1. */
int gpu_of_context(void);

#endif
