#include "meter.h"

#include "account.h"

#define MS 1000000ULL
#define CREDIT (200 * MS)        /* time unused that may be caught up with */
#define MOST_AT_ONCE (1000 * MS) /* who was stopped in between is not charged for all of it */
#define STALE (2000 * MS)        /* an agent that has not written for so long is not there */

static uint64_t rate_of(const struct gpu_limits *gpu, uint64_t now) {
    uint64_t beat = gpu->beat, rate = beat && now < beat + STALE ? gpu->rate : gpu->guarantee;
    return rate ? rate : 1;
}

/* Moments that several processes are in flight count once. */
static void cover(struct meter *meter, uint64_t from, uint64_t now) {
    uint64_t until = meter->covered;
    while (until < now)
        if (atomic_compare_exchange_weak(&meter->covered, &until, now)) {
            atomic_fetch_add(&meter->busy, now - (until > from ? until : from));
            return;
        }
}

/* Whoever is first to see another rate has what is owed take as long as it does at that rate. */
static void reprice(struct meter *meter, uint64_t rate, uint64_t now) {
    uint64_t before = meter->priced, old = meter->free_at, fresh;
    if (before == rate || !atomic_compare_exchange_strong(&meter->priced, &before, rate) || !before) return;
    do {
        if (old <= now) return;
        fresh = now + (uint64_t)((double)(old - now) * (double)before / (double)rate);
    } while (!atomic_compare_exchange_weak(&meter->free_at, &old, fresh));
}

void meter_pay(int gpu, uint64_t ns, uint64_t now) {
    struct meter *meter = &account->meter[gpu];
    const struct gpu_limits *limit = &limits->gpu[gpu];
    if (ns > MOST_AT_ONCE) ns = MOST_AT_ONCE;
    uint64_t weight = limit->weight, used = ns * (weight < PARTS_PER_MILLION ? weight : PARTS_PER_MILLION);
    used /= PARTS_PER_MILLION;
    atomic_fetch_add(&meter->in_flight, ns);
    cover(meter, now - ns, now);
    atomic_fetch_add(&meter->charged, used);
    uint64_t rate = rate_of(limit, now), costs = used * PARTS_PER_MILLION / rate, old, fresh;
    reprice(meter, rate, now);
    old = meter->free_at;
    do {
        fresh = (old + CREDIT > now ? old : now - CREDIT) + costs;
    } while (!atomic_compare_exchange_weak(&meter->free_at, &old, fresh));
}


uint64_t meter_due(int gpu, uint64_t now) {
    struct meter *meter = &account->meter[gpu];
    uint64_t rate = rate_of(&limits->gpu[gpu], now);
    if (meter->free_at <= now || rate >= PARTS_PER_MILLION) return 0;
    reprice(meter, rate, now);
    uint64_t free_at = meter->free_at;
    return free_at > now ? free_at - now : 0;
}

void meter_want(int gpu, uint64_t now) {
    atomic_store_explicit(&account->meter[gpu].wanted, now, memory_order_relaxed);
}

void meter_held(int gpu, uint64_t ns) {
    atomic_fetch_add(&account->meter[gpu].held, ns);
}
