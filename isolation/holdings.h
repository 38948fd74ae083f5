/* What this process holds, and what each of it was charged with. */
#ifndef ALIQUOT_HOLDINGS_H
#define ALIQUOT_HOLDINGS_H

#include "account.h"
#include "granules.h"
#include "map.h"
#include "table.h"

#define LENT 1U /* of a block, of a pool or not: other processes may have opened it */

enum kind {
    BLOCK = 1, /* cuMemAlloc and its kin, by address */
    POOL_BLOCK,
    POOL,
    ARRAY,
    HANDLE, /* physical memory of cuMemCreate and imported handles */
    MAPPING,
    EXTERNAL,
    IMPORTED, /* another process's memory, by the address it has here: of cuMemAlloc, or of a pool */
    CONTEXT,
    CONTEXT_LIMIT,
    CODE, /* modules and libraries */
    EXEC, /* an executable graph that allocates */
    GREEN_CONTEXT,
    SENT, /* memory that this process let go of, and of which a descriptor may be open, by a number of ours */
};

struct holding {
    enum kind kind;
    uint64_t value; /* the driver's handle or address */
    struct record record;
};

/* Remember; false (and nothing remembered) if this process is out of memory itself. */
bool holdings_add(struct holding holding);

/* Take out, so that nobody else frees the same; false if it is not ours. */
bool holdings_take(enum kind kind, uint64_t value, struct holding *taken);

/* Look at one, which stays; false if it is not ours. */
bool holdings_find(enum kind kind, uint64_t value, struct holding *found);

/* Change one record under the lock; false if there is none. */
bool holdings_change(enum kind kind, uint64_t value, void (*change)(struct record *record, void *with), void *with);

/* Take out one that belongs to a context which is gone; false when there is none left. */
bool holdings_take_of_context(uint64_t context, struct holding *taken);

/* Call for each holding of a kind, under no lock, with a copy. */
void holdings_each(enum kind kind, void (*visit)(struct holding holding, void *with), void *with);

/* Charge, after giving back what the driver only keeps in store, if it must be; false if there is no room.
 *
 * Locks are taken in this order, and none that stands before one which the thread holds: those of contexts, of stores
 * and of code; of gaps; of handles; of pools; of graphs; of managed memory; of this map, of granules and of the account. So
 * whoever holds that of pools or of graphs asks by `account_charge`, lets go of it where that is refused, has the store
 * given back and asks again. */
bool charge(int gpu, uint64_t bytes);
void give_back_unused(int gpu);

/* The calling thread's context, as a number. */
uint64_t current_context(void);

/* Take note of what pools gave back by themselves, and of descriptors that were closed; whether there were any. */
void pools_settle(void);
bool handles_settle(void);

/* Take out what a pool's block is remembered as, its own process's or a borrowed one; false if it is none. */
bool pools_take_block(CUdeviceptr address, struct holding *block);
/* The driver has freed it. */
void pools_block_freed(const struct holding *block);

/* Give back what lies unused in pools and graphs of this process. */
void pools_trim(int gpu);
void graphs_trim(int gpu);

#endif
