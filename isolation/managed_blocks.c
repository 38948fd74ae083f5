/* What is charged of a block's granules, who brought it, and what is still to be done for that. */
#include "managed_blocks.h"

#include <stdlib.h>

#include "granules.h"

static uint64_t first_of(const struct managed *block) {
    return block->span.address / GRANULE;
}

uint64_t block_granules(const struct managed *block) {
    return (block->span.end - 1) / GRANULE - first_of(block) + 1;
}

struct part block_part(const struct managed *block, const struct range *range, bool whole) {
    uint64_t address = range->address, first = first_of(block), last = block->span.end;
    uint64_t end = address + range->bytes < address ? UINT64_MAX : address + range->bytes;
    if (!range->bytes || end <= block->span.address || address >= last) return (struct part){0, 0};
    uint64_t from = address <= block->span.address ? first : (whole ? address + GRANULE - 1 : address) / GRANULE;
    uint64_t to = end >= last ? first + block_granules(block) : (whole ? end : end + GRANULE - 1) / GRANULE;
    return (struct part){from - first, to > from ? to - first : from - first};
}

struct managed *block_add(struct managed_core *core, struct range range) {
    struct managed known = {.span = {.address = range.address, .end = range.address + range.bytes}, .home = range.gpu};
    struct managed *block = calloc(1, sizeof *block + block_granules(&known) * sizeof *block->granules);
    if (!block) return NULL;
    *block = known;
    spans_add(&core->blocks, &block->span);
    return block;
}

uint64_t managed_core_known_until(const struct managed_core *core, uint64_t address) {
    const struct span *block = spans_next(core->blocks, NULL, address, address + 1);
    return block ? block->end : address;
}

/* A call that began before it was known has not charged it. */
static bool is_met(const struct managed_core *core, const struct range *range) {
    for (const struct placing *call = core->placings; call; call = call->next)
        for (size_t at = 0; at < call->count; at++) {
            uint64_t from = call->ranges[at].address, bytes = call->ranges[at].bytes;
            if (from < range->address + range->bytes && (from >= range->address || range->address - from < bytes)) return true;
        }
    return false;
}

struct managed *managed_core_find(struct managed_core *core, struct range range) {
    return is_met(core, &range) ? NULL : block_add(core, range);
}

/* Others may lie in a granule that the block fills only in part. */
static bool is_shared(const struct managed *block, uint64_t index) {
    uint64_t start = (first_of(block) + index) * GRANULE;
    return start < block->span.address || start + GRANULE > block->span.end;
}

static uint64_t key_of(const struct managed *block, uint64_t index, int gpu) {
    return (first_of(block) + index) * MOST_GPUS + (uint64_t)gpu + 1;
}

bool granule_hold(struct managed_core *core, const struct managed *block, uint64_t index, int gpu, bool *fresh) {
    *fresh = true;
    if (!is_shared(block, index)) return true;
    uint64_t key = key_of(block, index, gpu);
    struct record *held = map_find(&core->shared, key);
    if (!held) return map_put(&core->shared, (struct record){.key = key, .references = 1});
    held->references++;
    *fresh = false;
    return true;
}

bool granule_let_go(struct managed_core *core, const struct managed *block, uint64_t index, int gpu) {
    if (!is_shared(block, index)) return true;
    struct record *held = map_find(&core->shared, key_of(block, index, gpu)), gone;
    return --held->references == 0 && map_take(&core->shared, held->key, &gone);
}

void granule_release(struct managed_core *core, struct managed *block, uint64_t index, uint16_t from) {
    struct placed *granule = &block->granules[index];
    for (int gpu = 0; gpu < MOST_GPUS; gpu++)
        if (granule->on & from & 1U << gpu && granule_let_go(core, block, index, gpu)) core->freed[gpu] += GRANULE;
    granule->on &= (uint16_t)~from;
    granule->leaves &= (uint16_t)~from;
}

/* ------------------------------------------------------------------ who brought it */

bool block_is_behind(const struct managed *block, const struct lane *lane) {
    const struct bringer *by = block->bringer;
    if (block->tangled || lane->by != BY_STREAM) return false;
    return !by || (!by->ended && by->lane.stream == lane->stream && by->lane.context == lane->context);
}

static struct bringer *bringer_of(struct managed_core *core, const struct lane *lane) {
    struct bringer *one = core->bringers;
    while (one && (one->ended || one->lane.stream != lane->stream || one->lane.context != lane->context)) one = one->next;
    if (one) return one;
    one = malloc(sizeof *one);
    if (!one) return NULL;
    *one = (struct bringer){.next = core->bringers, .lane = *lane};
    return core->bringers = one;
}

void block_forget_bringer(struct managed_core *core, struct managed *block) {
    struct bringer *by = block->bringer, **at = &core->bringers;
    block->bringer = NULL;
    block->tangled = false;
    if (!by || --by->blocks) return;
    while (*at != by) at = &(*at)->next;
    *at = by->next;
    free(by);
}

void block_bring(struct managed_core *core, struct managed *block, const struct lane *lane) {
    bool is_behind = block_is_behind(block, lane);
    if (is_behind && block->bringer) return;
    struct bringer *by = is_behind ? bringer_of(core, lane) : NULL;
    block_forget_bringer(core, block);
    block->tangled = !by;
    block->bringer = by;
    if (by) by->blocks++;
}

/* Of a call that is under way nobody knows any more which stream it came to. */
void managed_core_let_go(struct managed_core *core, const void *stream) {
    for (struct bringer *by = core->bringers; by; by = by->next)
        if (by->lane.stream == stream) by->ended = true;
    for (struct placing *call = core->placings; call; call = call->next)
        if (call->lane.by == BY_STREAM && call->lane.stream == stream) call->lane.by = BY_ENDED;
}

bool owner_may_be(const void *context, const void *green, const void *part) {
    return context && (context == green || context == part || context == UNKNOWN_CONTEXT);
}

void managed_core_let_green_go(struct managed_core *core, const void *green, const void *part) {
    for (struct bringer *by = core->bringers; by; by = by->next)
        if (owner_may_be(by->lane.context, green, part)) by->ended = true;
    for (struct placing *call = core->placings; call; call = call->next)
        if (call->lane.by == BY_STREAM && owner_may_be(call->lane.context, green, part)) call->lane.by = BY_ENDED;
}

/* ------------------------------------------------------------------ what its stream has still to do */

void block_passes_no_more(struct managed_core *core, struct managed *block) {
    struct passage *passage = block->passage, **at = &core->passages;
    if (!passage) return;
    block->passage = NULL;
    *block->link = block->next;
    if (block->next) block->next->link = block->link;
    if (passage->blocks) return;
    while (*at != passage) at = &(*at)->next;
    *at = passage->next;
    passage->next = core->over;
    core->over = passage;
}

void block_pass(struct managed_core *core, struct managed *block, struct passage *passage) {
    if (block->passage == passage) return;
    block_passes_no_more(core, block);
    block->passage = passage;
    block->next = passage->blocks;
    block->link = &passage->blocks;
    if (block->next) block->next->link = &block->next;
    passage->blocks = block;
}
