/* Memory that one process of the container lends to others by IPC: it is there once, and charged once.
 *
 * While the lender lives and holds it, the lender is charged. When the lender frees it, ends, or becomes another
 * program, the memory lives on by those who borrowed it, and from then on each of them is charged for it. Whose turn it
 * is follows from what stands in the account, so no step of it can be lost with a process. What finds no place in the
 * two tables is charged to whoever opens it. */
#ifndef ALIQUOT_LENDING_H
#define ALIQUOT_LENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "account.h"
#include "driver.h"

#define MOST_LENT 256
#define MOST_BORROWED 512
#define LENDING_AT (SLOTS_AT + MOST_PROCESSES * sizeof(struct process_slot))

struct lent {
    _Atomic uint64_t handle; /* a digest of it; 0: unused */
    uint64_t address, bytes, life;
    uint32_t slot, gpu;
};

struct borrowed {
    _Atomic uint64_t bytes; /* 0: unused */
    uint64_t address, lender_life;
    uint32_t lender, borrower, gpu;
    _Atomic uint32_t orphan; /* the lender has freed it */
};

struct lending {
    _Atomic uint64_t highest; /* entries of `borrowed` from here on were never used */
    struct lent lent[MOST_LENT];
    struct borrowed borrowed[MOST_BORROWED];
};

_Static_assert(LENDING_AT + sizeof(struct lending) <= MOMENTS_AT, "the file holds both tables");

/* All of these under the account's lock. */
uint64_t lending_sum(int gpu);
void lending_clear(uint32_t slot);
void lending_lend(const CUipcMemHandle *handle, uint64_t address, uint64_t bytes, uint32_t slot, int gpu);
/* Borrow; the entry's number plus one, or 0 if nobody of this container lends it or there is no place. */
uint32_t lending_borrow(const CUipcMemHandle *handle, uint32_t slot);
void lending_return(uint32_t entry);
void lending_freed(uint64_t address, uint32_t slot);

#endif
