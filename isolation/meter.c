#include "meter.h"

#include "moments.h"
#include "patience.h"

#define MS 1000000ULL
#define CREDIT (200 * MS)        /* time unused that may be caught up with */
#define MOST_AT_ONCE (1000 * MS) /* who was stopped in between is not charged for all of it */
#define STALE (2000 * MS)        /* an agent that has not written for so long is not there */
#define NO_MOMENT (5 * MS)       /* watches look every ms: a gap as short as this may be one that came late */
#define KEPT (100 * MS)          /* processes pay one after the other for the same moments, some late */

static uint64_t rate_of(const struct gpu_limits *gpu, uint64_t now) {
    uint64_t beat = gpu->beat, rate = beat && now < beat + STALE ? gpu->rate : gpu->guarantee;
    return rate ? rate : 1;
}

/* Moments that several processes are in flight count once. How many are new. */
static uint64_t cover(const struct spending *on, uint64_t from, uint64_t now) {
    uint64_t until = on->meter->covered;
    while (until < now)
        if (atomic_compare_exchange_weak(&on->meter->covered, &until, now)) {
            uint64_t fresh = now - (until > from ? until : from);
            if (from > until + NO_MOMENT) patience_anew(on->patience, from);
            atomic_fetch_add(&on->meter->busy, fresh);
            return fresh;
        }
    return 0;
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

uint64_t meter_weighed(const struct spending *on, uint64_t ns) {
    uint64_t weight = on->limits->weight;
    return ns * (weight < PARTS_PER_MILLION ? weight : PARTS_PER_MILLION) / PARTS_PER_MILLION;
}

/* So much of it as there were moments that nobody was charged for. */
static uint64_t chargeable(struct patience *patience, uint64_t used, uint64_t fresh) {
    uint64_t old = patience->uncharged, there, charged, left;
    do {
        there = (old < KEPT ? old : KEPT) + fresh;
        charged = used < there ? used : there;
        left = there - charged < KEPT ? there - charged : KEPT;
    } while (!atomic_compare_exchange_weak(&patience->uncharged, &old, left));
    return charged;
}

/* What the last beat's moments took is only known by the next: the weight that is written then is what was seen of them. So
 * they are charged for anew, and who was charged as if alone while eight others had just begun has most of that back. */
static void weigh_anew(const struct spending *on, uint64_t rate) {
    struct patience *last = on->patience;
    uint64_t beat = on->limits->beat, before = last->beat;
    if (beat == before || !atomic_compare_exchange_strong(&last->beat, &before, beat)) return;
    uint64_t in_flight = on->meter->in_flight, busy = on->meter->busy, charged = on->meter->charged;
    uint64_t there = busy - atomic_exchange(&last->busy, busy);
    uint64_t took = meter_weighed(on, in_flight - atomic_exchange(&last->in_flight, in_flight));
    if (took > there) took = there;
    int64_t more = (int64_t)(took - (charged - atomic_exchange(&last->charged, charged)));
    bool is_owed = beat < before + STALE && on->meter->priced < PARTS_PER_MILLION;
    if (!is_owed || more < -(int64_t)STALE || more > (int64_t)STALE) return;
    atomic_fetch_add(&on->meter->charged, (uint64_t)more);
    atomic_fetch_add(&last->charged, (uint64_t)more);
    atomic_fetch_add(&on->meter->free_at, (uint64_t)(more * (int64_t)PARTS_PER_MILLION / (int64_t)rate));
}

uint64_t meter_work(const struct spending *on, uint64_t ns, struct metered *last) {
    struct metered now = {on->meter->in_flight, on->meter->busy};
    uint64_t in_flight = now.in_flight - last->in_flight, busy = now.busy - last->busy;
    *last = now;
    double processes = busy && in_flight > busy ? (double)in_flight / (double)busy : 1;
    return (uint64_t)((double)meter_weighed(on, ns) * (processes < MOST_PROCESSES ? processes : MOST_PROCESSES));
}

bool meter_is_whole(const struct spending *on, uint64_t now) {
    return rate_of(on->limits, now) >= PARTS_PER_MILLION;
}

uint64_t meter_price(const struct spending *on, uint64_t ns, uint64_t now) {
    return ns * PARTS_PER_MILLION / rate_of(on->limits, now);
}

void meter_pay(const struct spending *on, uint64_t ns, uint64_t now) {
    struct meter *meter = on->meter;
    if (ns > MOST_AT_ONCE) ns = MOST_AT_ONCE;
    atomic_fetch_add(&meter->in_flight, ns);
    uint64_t used = chargeable(on->patience, meter_weighed(on, ns), cover(on, now - ns, now));
    moments_add(on->moments, now - ns, now);
    atomic_fetch_add(&meter->charged, used);
    uint64_t rate = rate_of(on->limits, now), costs = meter_price(on, used, now), old, fresh;
    weigh_anew(on, rate);
    reprice(meter, rate, now);
    old = meter->free_at;
    do {
        fresh = (old + CREDIT > now ? old : now - CREDIT) + costs;
        /* Whoever has the whole GPU is not held back, so what it owed it would owe for ever, and pay when others come. */
        if (rate >= PARTS_PER_MILLION && fresh > now) fresh = now;
    } while (!atomic_compare_exchange_weak(&meter->free_at, &old, fresh));
}

uint64_t meter_due(const struct spending *on, uint64_t now) {
    if (on->meter->free_at <= now) return 0;
    uint64_t rate = rate_of(on->limits, now);
    if (rate >= PARTS_PER_MILLION) return 0;
    reprice(on->meter, rate, now);
    uint64_t free_at = on->meter->free_at;
    return free_at > now ? free_at - now : 0;
}

void meter_want(const struct spending *on, uint64_t now) {
    atomic_store_explicit(&on->meter->wanted, now, memory_order_relaxed);
}

void meter_held(const struct spending *on, uint64_t ns) {
    atomic_fetch_add(&on->meter->held, ns);
}
