/* A block of managed memory and its granules, for the parts of managed_core.h alone. */
#ifndef ALIQUOT_MANAGED_BLOCKS_H
#define ALIQUOT_MANAGED_BLOCKS_H

#include "managed_core.h"

/* Of each granule by bits on which GPUs besides its home it is charged, which of them it leaves when the passage is over,
 * which are planned, and to which the driver may bring it back by itself; and the calls that are under way for it. */
struct placed {
    uint16_t on, leaves, wanted, preferred;
    int8_t to;    /* where they bring it; -1: home, or nowhere */
    bool crossed; /* they do not agree, or one may have found another block there */
    uint32_t busy;
};
_Static_assert(MOST_GPUS <= 16, "a bit for each GPU");

struct managed {
    struct span span; /* first: the tree's */
    int home;
    bool copied, tangled; /* mostly read; brought by several lanes, or nobody knows: nothing leaves it */
    uint32_t under_way;   /* calls, by ranges of theirs */
    struct bringer *bringer;
    struct passage *passage;      /* what its bringer was given last */
    struct managed *next, **link; /* in the passage's list */
    struct placed granules[];
};

/* Its granules by index, from one up to before another. */
struct part {
    uint64_t from, to;
};

uint64_t block_granules(const struct managed *block);

/* One of which nothing is charged yet. NULL: no memory. */
struct managed *block_add(struct managed_core *core, struct range range);

/* Those that a range touches: all, or those that it covers whole as far as the block goes. */
struct part block_part(const struct managed *block, const struct range *range, bool whole);

/* Hold a granule on a GPU, and let go of it; `fresh`, `last`: no other block does. False: no memory. */
bool granule_hold(struct managed_core *core, const struct managed *block, uint64_t index, int gpu, bool *fresh);
bool granule_let_go(struct managed_core *core, const struct managed *block, uint64_t index, int gpu);

/* It is no longer charged on these GPUs. */
void granule_release(struct managed_core *core, struct managed *block, uint64_t index, uint16_t from);

/* Whether what a lane does is behind all that brought the block where it is; and that it brings it. */
bool block_is_behind(const struct managed *block, const struct lane *lane);
void block_bring(struct managed_core *core, struct managed *block, const struct lane *lane);
void block_forget_bringer(struct managed_core *core, struct managed *block);

void block_pass(struct managed_core *core, struct managed *block, struct passage *passage);
void block_passes_no_more(struct managed_core *core, struct managed *block);

#endif
