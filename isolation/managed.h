/* Managed memory that a program places on another GPU of its slice than the one that it was charged to.
 *
 * A block is charged whole to the GPU of the context that it was taken in, and stays so: the driver may bring any of it
 * back there. What is placed on another GPU is charged there besides, by granules, until it is placed elsewhere and that
 * is done, or freed. What several streams bring there nobody can put in order, nor what a thread's own default stream does,
 * which ends with the thread: it stays charged until it is freed. To place is advice: where there is no room for it it is left out, and the program goes on as with
 * memory that is where it was. A slice of one GPU has none of this. */
#ifndef ALIQUOT_MANAGED_H
#define ALIQUOT_MANAGED_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

struct managed;

/* A block of managed memory; NULL where nobody need remember it, or can. */
struct managed *managed_enter(uint64_t address, uint64_t bytes, int gpu);
void managed_leave(struct managed *block);

/* What a call is given to. */
struct lane {
    CUstream stream;
    bool per_thread;
};

/* Part of blocks, or more than one, is about to lie on a GPU (on none of them: -1); false if there is no room. By advice,
 * which is of no stream (NULL), or by a call; when that is over, managed_came. */
bool managed_comes(uint64_t address, uint64_t bytes, int gpu, const struct lane *lane);

void managed_came(int gpu);

/* The driver has been told to put it there: it leaves where else it was. */
void managed_goes(uint64_t address, uint64_t bytes, int gpu, const struct lane *lane);

/* A stream is about to end: its number may be another one's. */
void managed_let_go(CUstream stream);

/* It is mostly read, so the driver makes copies: none of them leaves any more. */
void managed_copied(uint64_t address, uint64_t bytes);

/* Take back what has left a GPU by now. */
void managed_settle(void);

/* A context may end between these two; the second says which one did. */
void managed_pause(void);
void managed_resume(CUcontext gone);

#endif
