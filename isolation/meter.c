#include "meter.h"

#include "account.h"
#include "crowd.h"

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

/* What so long in flight took of the GPU. */
static uint64_t weighed(int gpu, uint64_t ns) {
    uint64_t weight = limits->gpu[gpu].weight;
    return ns * (weight < PARTS_PER_MILLION ? weight : PARTS_PER_MILLION) / PARTS_PER_MILLION;
}

uint64_t meter_work(int gpu, uint64_t ns, struct metered *last) {
    struct metered now = {account->meter[gpu].in_flight, account->meter[gpu].busy};
    uint64_t in_flight = now.in_flight - last->in_flight, busy = now.busy - last->busy;
    *last = now;
    double processes = busy && in_flight > busy ? (double)in_flight / (double)busy : 1;
    return (uint64_t)((double)weighed(gpu, ns) * (processes < MOST_PROCESSES ? processes : MOST_PROCESSES));
}

void meter_pay(int gpu, uint64_t ns, uint64_t now) {
    struct meter *meter = &account->meter[gpu];
    if (ns > MOST_AT_ONCE) ns = MOST_AT_ONCE;
    uint64_t used = weighed(gpu, ns);
    atomic_fetch_add(&meter->in_flight, ns);
    cover(meter, now - ns, now);
    crowd_count(gpu);
    atomic_fetch_add(&meter->charged, used);
    uint64_t rate = rate_of(&limits->gpu[gpu], now), costs = used * PARTS_PER_MILLION / rate, old, fresh;
    reprice(meter, rate, now);
    old = meter->free_at;
    do {
        fresh = (old + CREDIT > now ? old : now - CREDIT) + costs;
        /* Whoever has the whole GPU is not held back, so what it owed it would owe for ever, and pay when others come. */
        if (rate >= PARTS_PER_MILLION && fresh > now) fresh = now;
    } while (!atomic_compare_exchange_weak(&meter->free_at, &old, fresh));
}

uint64_t meter_due(int gpu, uint64_t now) {
    struct meter *meter = &account->meter[gpu];
    if (meter->free_at <= now) return 0;
    uint64_t rate = rate_of(&limits->gpu[gpu], now);
    if (rate >= PARTS_PER_MILLION) return 0;
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
