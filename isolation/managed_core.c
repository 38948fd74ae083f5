#include "managed_core.h"

#include <stdlib.h>
#include <string.h>

#include "granules.h"
#include "managed_blocks.h"
#include "managed_guards.h"
#include "managed_past.h"

static struct managed *next_in(const struct managed_core *core, const struct managed *after, const struct range *range) {
    uint64_t end = range->address + range->bytes;
    if (!range->bytes) return NULL;
    return (struct managed *)spans_next(core->blocks, after ? &after->span : NULL, range->address,
                                        end < range->address ? UINT64_MAX : end);
}

#define EACH_BLOCK(block, core, range) \
    for (struct managed *block = next_in(core, NULL, range); block; block = next_in(core, block, range))

static bool brings(const struct managed *block, const struct range *range) {
    return range->gpu >= 0 && range->gpu != block->home;
}

/* ------------------------------------------------------------------ what is planned */

static bool want(struct managed_core *core, struct managed *block, const struct range *range, struct fresh *fresh) {
    const uint16_t bit = (uint16_t)(1U << range->gpu);
    struct part part = block_part(block, range, false);
    for (uint64_t i = part.from; i < part.to; i++) {
        struct placed *granule = &block->granules[i];
        bool is_fresh;
        if ((granule->on | granule->wanted) & bit) continue;
        if (!granule_hold(core, block, i, range->gpu, &is_fresh)) return false;
        granule->wanted |= bit;
        if (is_fresh) fresh->bytes[range->gpu] += GRANULE;
    }
    return true;
}

static void want_no_more(struct managed_core *core, struct managed *block, struct part part) {
    for (uint64_t i = part.from; i < part.to; i++) {
        struct placed *granule = &block->granules[i];
        for (int gpu = 0; granule->wanted && gpu < MOST_GPUS; gpu++)
            if (granule->wanted & 1U << gpu) granule_let_go(core, block, i, gpu);
        granule->wanted = 0;
    }
}

bool managed_core_plan(struct managed_core *core, const struct placing *placing, struct fresh *fresh) {
    *fresh = (struct fresh){0};
    guards_plan(core, placing, fresh);
    for (size_t at = 0; at < placing->count; at++)
        EACH_BLOCK(block, core, &placing->ranges[at])
            if (brings(block, &placing->ranges[at]) && !want(core, block, &placing->ranges[at], fresh)) return false;
    return true;
}

void managed_core_drop(struct managed_core *core, const struct placing *placing) {
    for (size_t at = 0; at < placing->count; at++)
        EACH_BLOCK(block, core, &placing->ranges[at])
            want_no_more(core, block, block_part(block, &placing->ranges[at], false));
}

/* ------------------------------------------------------------------ calls that are under way */

static void comes(struct placed *granule) {
    granule->on |= granule->wanted;
    granule->wanted = 0;
}

static void begin_granule(struct placed *granule, int to) {
    if (granule->busy && granule->to != to) granule->crossed = true;
    granule->busy++;
    granule->to = (int8_t)to;
}

static void become_copies(struct managed_core *core, struct managed *block) {
    block->copied = true;
    for (uint64_t i = 0; i < block_granules(block); i++) block->granules[i].leaves = 0;
    block_passes_no_more(core, block);
}

/* Advice that makes no copies is of where it is preferred to lie. */
static bool prefers(const struct placing *placing) {
    return placing->lane.by == BY_ADVICE && !placing->copies;
}

static void prefer(struct managed *block, const struct placing *placing, const struct range *range) {
    struct part part = block_part(block, range, false);
    if (!prefers(placing) || !brings(block, range)) return;
    for (uint64_t i = part.from; i < part.to; i++) block->granules[i].preferred |= (uint16_t)(1U << range->gpu);
}

/* What it was advised before holds no more, where nobody can have said so after it. */
static void prefer_alone(struct managed *block, const struct range *range) {
    const uint16_t there = brings(block, range) ? (uint16_t)(1U << range->gpu) : 0;
    struct part part = block_part(block, range, true);
    for (uint64_t i = part.from; i < part.to; i++)
        if (!block->granules[i].crossed) block->granules[i].preferred &= there;
}

static void begin_block(struct managed_core *core, struct managed *block, const struct placing *placing,
                        const struct range *range) {
    struct part part = block_part(block, range, false);
    const int to = brings(block, range) ? range->gpu : -1;
    for (uint64_t i = part.from; i < part.to; i++) {
        comes(&block->granules[i]);
        if (to >= 0) block->granules[i].leaves &= (uint16_t)~(1U << to);
        begin_granule(&block->granules[i], to);
    }
    block->under_way++;
    prefer(block, placing, range);
    if (to >= 0 && placing->lane.by != BY_ADVICE) block_bring(core, block, &placing->lane);
    if (placing->copies) become_copies(core, block);
}

void managed_core_begin(struct managed_core *core, struct placing *placing) {
    for (size_t at = 0; at < placing->count; at++)
        EACH_BLOCK(block, core, &placing->ranges[at]) begin_block(core, block, placing, &placing->ranges[at]);
    guards_begin(core, placing);
    placing->next = core->placings;
    core->placings = placing;
}

/* Where else it was than where it stays, if nothing else may have been put between, and nothing brings it back. */
static uint16_t leaves_by(const struct placed *granule, int gpu) {
    uint16_t stays = gpu < 0 ? 0 : (uint16_t)(1U << gpu);
    return granule->crossed ? 0 : granule->on & (uint16_t) ~(stays | granule->preferred);
}

/* The granules that it may take away from where they are. */
static struct part leaving_part(const struct managed *block, const struct range *range) {
    return block->copied ? (struct part){0, 0} : block_part(block, range, true);
}

static bool any_leaves(const struct managed *block, const struct range *range) {
    struct part part = leaving_part(block, range);
    for (uint64_t i = part.from; i < part.to; i++)
        if (leaves_by(&block->granules[i], range->gpu)) return true;
    return false;
}

static bool is_followed(const struct managed *block, const struct placing *placing, const struct range *range) {
    return block_is_behind(block, &placing->lane) && (brings(block, range) || any_leaves(block, range));
}

bool managed_core_is_followed(const struct managed_core *core, const struct placing *placing) {
    for (size_t at = 0; at < placing->count; at++)
        EACH_BLOCK(block, core, &placing->ranges[at])
            if (is_followed(block, placing, &placing->ranges[at])) return true;
    return false;
}

static void follow(struct managed_core *core, struct managed *block, const struct placing *placing,
                   const struct range *range, struct passage *passage, bool done) {
    if (!is_followed(block, placing, range)) return;
    struct part part = leaving_part(block, range);
    for (uint64_t i = part.from; done && i < part.to; i++)
        block->granules[i].leaves |= leaves_by(&block->granules[i], range->gpu);
    block_pass(core, block, passage);
    block_bring(core, block, &placing->lane);
}

/* When everything that it was told has been done, it no longer matters who told it. */
static void rest(struct managed_core *core, struct managed *block) {
    if (!block->tangled && !block->under_way && !block->passage) block_forget_bringer(core, block);
}

static void end_block(struct managed_core *core, struct managed *block, const struct placing *placing,
                      const struct range *range, const struct passage *passage, bool done) {
    struct part part = block_part(block, range, false);
    if (done && prefers(placing)) prefer_alone(block, range);
    for (uint64_t i = part.from; i < part.to; i++)
        if (--block->granules[i].busy == 0) block->granules[i].crossed = false;
    block->under_way--;
    bool is_lost = !passage || block->passage != passage;
    if (is_lost && brings(block, range) && placing->lane.by != BY_ADVICE) block->tangled = true;
    rest(core, block);
}

void managed_core_end(struct managed_core *core, struct placing *placing, struct passage *passage, bool done) {
    if (passage) passage->next = core->passages, core->passages = passage;
    for (size_t at = 0; passage && at < placing->count; at++)
        EACH_BLOCK(block, core, &placing->ranges[at]) follow(core, block, placing, &placing->ranges[at], passage, done);
    for (size_t at = 0; at < placing->count; at++)
        EACH_BLOCK(block, core, &placing->ranges[at]) end_block(core, block, placing, &placing->ranges[at], passage, done);
    struct placing **at = &core->placings;
    while (*at != placing) at = &(*at)->next;
    *at = placing->next;
    past_add(core, placing);
}

struct placing *managed_placing(const struct range *ranges, size_t count, struct lane lane) {
    struct placing *placing = count < SIZE_MAX / sizeof *ranges / 2 ? malloc(sizeof *placing + count * sizeof *ranges) : NULL;
    if (!placing) return NULL;
    *placing = (struct placing){.lane = lane, .count = count};
    if (count) memcpy(placing->ranges, ranges, count * sizeof *ranges);
    return placing;
}

/* ------------------------------------------------------------------ blocks */

void managed_core_taken(struct managed_core *core, struct taking *taking) {
    struct taking **at = &core->takings;
    guards_end(core, taking, &(struct fresh){0});
    while (*at != taking) at = &(*at)->next;
    *at = taking->next;
    past_forget(core);
}

static void forget(struct managed_core *core, struct managed *block) {
    block_passes_no_more(core, block);
    block_forget_bringer(core, block);
    spans_remove(&core->blocks, &block->span);
    free(block);
}

/* What calls bring that are under way while it is taken, or were: they may be after it. */
static bool want_all(struct managed_core *core, struct managed *block, const struct placing *calls, uint64_t since,
                     struct fresh *fresh) {
    for (const struct placing *call = calls; call; call = call->next)
        for (size_t at = 0; (!call->ended || call->ended > since) && at < call->count; at++)
            if (brings(block, &call->ranges[at]) && !want(core, block, &call->ranges[at], fresh)) return false;
    return true;
}

/* By a call of which nobody knows whether it found the block there. */
static void begin_with(struct managed_core *core, struct managed *block, const struct placing *call,
                       const struct range *range) {
    struct part part = block_part(block, range, false);
    if (part.from == part.to) return;
    block->tangled = true;
    if (call->copies) become_copies(core, block);
    if (call->ended) return;
    block->under_way++;
    for (uint64_t i = part.from; i < part.to; i++) begin_granule(&block->granules[i], range->gpu);
}

static void begin_with_all(struct managed_core *core, struct managed *block, const struct placing *calls, uint64_t since) {
    for (const struct placing *call = calls; call; call = call->next)
        for (size_t at = 0; (!call->ended || call->ended > since) && at < call->count; at++)
            begin_with(core, block, call, &call->ranges[at]);
}

struct managed *managed_core_enter(struct managed_core *core, struct taking *taking, struct range range) {
    struct fresh fresh = {0};
    struct managed *block = block_add(core, range);
    if (!block) return NULL;
    const uint64_t since = past_begins(core, taking, &block->span);
    if (!want_all(core, block, core->placings, 0, &fresh) || !want_all(core, block, core->past, since, &fresh)) {
        want_no_more(core, block, (struct part){0, block_granules(block)});
        forget(core, block);
        return NULL;
    }
    guards_end(core, taking, &fresh);
    for (uint64_t i = 0; i < block_granules(block); i++) comes(&block->granules[i]);
    begin_with_all(core, block, core->placings, 0);
    begin_with_all(core, block, core->past, since);
    return block;
}

void managed_core_leave(struct managed_core *core, struct managed *block) {
    for (uint64_t i = 0; i < block_granules(block); i++) granule_release(core, block, i, UINT16_MAX);
    forget(core, block);
}

/* ------------------------------------------------------------------ what streams have done */

void managed_core_passed(struct managed_core *core, struct passage *passage, bool known) {
    for (struct managed *block = passage->blocks, *next; block; block = next) {
        uint16_t left = 0;
        next = block->next;
        for (uint64_t i = 0; i < block_granules(block); i++) {
            if (known && block->granules[i].leaves) granule_release(core, block, i, block->granules[i].leaves);
            block->granules[i].leaves = 0;
            left |= block->granules[i].on;
        }
        block_passes_no_more(core, block);
        if (!known && left) block->tangled = true;
        rest(core, block);
    }
}

struct passage *managed_core_passing(const struct managed_core *core, struct range range, struct managed **after) {
    do {
        *after = next_in(core, *after, &range);
    } while (*after && !(*after)->passage);
    return *after ? (*after)->passage : NULL;
}
