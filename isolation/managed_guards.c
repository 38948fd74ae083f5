/* A block that is being taken lies somewhere before anybody but the driver knows where. So it is charged, before the driver is
 * asked for it, on every GPU that a call under way may bring it to; and a call that begins meanwhile charges it there first. */
#include "managed_guards.h"

#include "granules.h"

/* The GPUs that a call names. */
static uint16_t named_by(const struct placing *placing) {
    uint16_t gpus = 0;
    for (size_t at = 0; at < placing->count; at++)
        if (placing->ranges[at].gpu >= 0) gpus |= (uint16_t)(1U << placing->ranges[at].gpu);
    return gpus;
}

/* Those of them on which a block that is being taken has no charge yet. */
static uint16_t unguarded(const struct taking *taking, const struct placing *placing) {
    return named_by(placing) & (uint16_t) ~(taking->guarded | 1U << taking->home);
}

static uint16_t unguarded_by_all(const struct managed_core *core, const struct taking *taking) {
    uint16_t gpus = 0;
    for (const struct placing *call = core->placings; call; call = call->next) gpus |= unguarded(taking, call);
    return gpus;
}

static void add(struct fresh *fresh, const struct taking *taking, uint16_t gpus) {
    for (int gpu = 0; gpu < MOST_GPUS; gpu++)
        if (gpus & 1U << gpu) fresh->bytes[gpu] += taking->guard;
}

/* ------------------------------------------------------------------ for a block */

/* Wherever it begins, it touches one granule more than it fills at the most. */
void managed_core_taking(struct managed_core *core, struct taking *taking, int home, uint64_t bytes) {
    *taking = (struct taking){.next = core->takings, .begun = core->steps, .guard = TO_GRANULES(bytes) + GRANULE, .home = home};
    core->takings = taking;
}

bool managed_core_is_met(const struct managed_core *core, const struct taking *taking) {
    return unguarded_by_all(core, taking);
}

void managed_core_guard(const struct managed_core *core, const struct taking *taking, struct fresh *fresh) {
    *fresh = (struct fresh){0};
    add(fresh, taking, unguarded_by_all(core, taking));
}

/* What has ended by now did not meet it, for the driver was not asked for it. */
void managed_core_guarded(struct managed_core *core, struct taking *taking) {
    taking->guarded |= unguarded_by_all(core, taking);
    taking->begun = core->steps;
}

/* ------------------------------------------------------------------ for a call */

bool managed_core_meets(const struct managed_core *core, const struct placing *placing) {
    for (const struct taking *taking = core->takings; taking; taking = taking->next)
        if (unguarded(taking, placing)) return true;
    return false;
}

void guards_plan(const struct managed_core *core, const struct placing *placing, struct fresh *fresh) {
    for (const struct taking *taking = core->takings; taking; taking = taking->next)
        add(fresh, taking, unguarded(taking, placing));
}

void guards_begin(struct managed_core *core, const struct placing *placing) {
    for (struct taking *taking = core->takings; taking; taking = taking->next)
        taking->guarded |= unguarded(taking, placing);
}

void guards_end(struct managed_core *core, struct taking *taking, const struct fresh *needed) {
    for (int gpu = 0; gpu < MOST_GPUS; gpu++)
        if (taking->guarded & 1U << gpu) core->freed[gpu] += taking->guard - needed->bytes[gpu];
    taking->guarded = 0;
}
