/* What all processes of the container hold: one file, mapped by all of them.
 *
 * How it works. Each process owns a slot, and writes what it holds into that slot only, as single words. What the
 * container holds is the sum over the slots, so there is no total that a killed process could leave wrong. Adding takes
 * the one lock of the file, which the kernel hands on when its holder dies; taking away takes none.
 * A slot is its process's by pid namespace, pid and start time: the first process of each namespace has the same pid, and
 * start times are told in hundredths of a second. A process may have loaded this library twice, as two files or in two
 * namespaces of its linker: then it has two slots. Whoever finds no room clears the slots of the dead first: processes
 * that are gone, and those that became another program by exec, for their map of this file is gone.
 * What must hold: a slot never says less than its process holds of the GPU's memory. So a charge is made before the
 * driver is asked and taken back after the driver has freed. */
#ifndef ALIQUOT_ACCOUNT_H
#define ALIQUOT_ACCOUNT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "limits.h"

#define MOST_PROCESSES 1024
#define ACCOUNT_BYTES 262144
#define SLOTS_AT 8192

struct process_slot {
    _Atomic uint64_t born; /* the process's start time; 0: nobody's */
    _Atomic uint32_t pid, namespace;
    _Atomic uint64_t used[MOST_GPUS];
    _Atomic uint64_t life; /* another one each time that the slot is cleared */
    uint64_t program;      /* what tells a program from the one that it became by exec */
    uint64_t reserved[4];
};

/* The compute side of one GPU, for all processes of the container. */
struct meter {
    _Atomic uint64_t free_at;  /* CLOCK_MONOTONIC in ns: when what was used is paid for at the rate in force */
    _Atomic uint64_t in_flight; /* ns for which work was in flight, summed over processes */
    _Atomic uint64_t charged;   /* the same, weighed */
    _Atomic uint64_t wanted;    /* CLOCK_MONOTONIC in ns of the last launch that was asked for */
    _Atomic uint64_t held;      /* ns for which launches were held back, in all */
    _Atomic uint64_t busy;      /* ns for which work of any process was in flight */
    _Atomic uint64_t covered;   /* up to when `busy` is counted */
    _Atomic uint64_t priced;   /* the rate by which `free_at` was worked out, in millionths; 0: none yet */
};

/* For how long work was in flight in each of the last windows of time, summed over processes (moments.c). Of one GPU. */
#define MOMENTS 64
#define MOMENTS_AT (ACCOUNT_BYTES - MOST_GPUS * sizeof(struct moments)) /* behind all else */

struct moments {
    _Atomic uint64_t in_flight[MOMENTS];
};

/* Launches that pass although the container owes, or has enough in its queue (patience.c), and what is to be charged anew
 * (meter.c). */
struct patience {
    _Atomic uint64_t busy_since; /* CLOCK_MONOTONIC in ns: since when some of its work was in flight at every moment */
    _Atomic uint64_t next_at;    /* when one more may pass, while that goes on; 0: none passed yet */
    _Atomic uint64_t doubled;    /* how many passed of which none is known to have ended */
    _Atomic uint64_t escapes;    /* how many passed in all */
    _Atomic uint64_t turn_until; /* until then no other launch may pass that takes long, or nobody knows how long */
    _Atomic uint64_t uncharged;  /* ns of `busy` that nobody was charged for yet */
    /* The agent's beat that charges go by, and the meter's numbers as of then. */
    _Atomic uint64_t beat, in_flight, busy, charged;
    _Atomic uint64_t longest; /* ns that passed until something ended by itself, at the most */
    uint64_t reserved[5];
};

struct account {
    char magic[8];
    _Atomic uint32_t ready, highest; /* slots from `highest` on were never used */
    pthread_mutex_t lock;
    struct meter meter[MOST_GPUS] __attribute__((aligned(1024)));
    char spare[MOST_GPUS][128];
    struct patience patience[MOST_GPUS];
};

_Static_assert(sizeof(struct account) <= SLOTS_AT, "slots begin after the head");
_Static_assert(SLOTS_AT + MOST_PROCESSES * sizeof(struct process_slot) <= MOMENTS_AT, "the file holds all slots");

extern struct account *account;

bool account_open(void);

/* Charge this process; false if the container would hold more than it may. */
bool account_charge(int gpu, uint64_t bytes);

/* Charge without asking: for what the driver has already given and can't be made to take back. */
void account_charge_anyway(int gpu, uint64_t bytes);

void account_release(int gpu, uint64_t bytes);

/* All slots; when a GPU was worked on; and memory that processes lend each other (lending.h). */
struct process_slot *account_slots(void);
struct moments *account_moments(int gpu);
void account_lend(const CUipcMemHandle *handle, uint64_t address, uint64_t bytes, int gpu);
/* A number to give it back by; 0 if it has to be charged. */
uint32_t account_borrow(const CUipcMemHandle *handle);
void account_return(uint32_t borrowed);
/* Lent memory is about to be freed by its lender. */
void account_recall(uint64_t address);

/* What the container holds, the dead cleared away. */
uint64_t account_held(int gpu);

#endif
