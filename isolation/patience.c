#include "patience.h"

#define MS 1000000ULL
#define PATIENCE (10000 * MS)
#define MOST_PATIENCE (120000 * MS)
#define IN_FLIGHT (100 * MS) /* a watch may be late; who has had nothing in flight for longer waits for no launch */
#define AT_LEAST MS          /* between two that pass */
#define MOST_DOUBLED 10
#define LONGEST_TURN PATIENCE /* nobody is told a longer one by another process */

/* Twice as long as anything took that waited for nobody. */
static uint64_t patience_of(const struct patience *patience) {
    uint64_t longest = patience->longest;
    return longest < PATIENCE / 2 ? PATIENCE : longest > MOST_PATIENCE / 2 ? MOST_PATIENCE : 2 * longest;
}

bool patience_ends(const struct spending *on, uint64_t waits_since, uint64_t now) {
    struct patience *patience = on->patience;
    uint64_t patient = patience_of(patience), began = patience->busy_since, next = patience->next_at, doubled = patience->doubled;
    if (now > on->meter->covered + IN_FLIGHT) return false;
    if (now < (next ? next : (began > waits_since ? began : waits_since) + patient)) return false;
    uint64_t then = now + (patient << (doubled < MOST_DOUBLED ? doubled : MOST_DOUBLED));
    if (!atomic_compare_exchange_strong(&patience->next_at, &next, then)) return false;
    patience->doubled = doubled + 1;
    atomic_fetch_add(&patience->escapes, 1);
    return true;
}

void patience_anew(struct patience *patience, uint64_t now) {
    patience->next_at = patience->doubled = 0;
    patience->busy_since = now;
}

void patience_ended(const struct spending *on, uint64_t passed_at, uint64_t now) {
    uint64_t price = meter_price(on, now - passed_at, now), old = on->patience->next_at;
    uint64_t then = now + (price > AT_LEAST ? price : AT_LEAST);
    while (then < old)
        if (atomic_compare_exchange_weak(&on->patience->next_at, &old, then)) {
            on->patience->doubled = 0;
            return;
        }
}

void patience_took(struct patience *patience, uint64_t ns) {
    uint64_t longest = patience->longest;
    if (patience->next_at && !patience->doubled) return;
    while (ns > longest && !atomic_compare_exchange_weak(&patience->longest, &longest, ns)) {}
}

bool patience_turn(const struct spending *on, uint64_t *mine, uint64_t until, uint64_t now) {
    uint64_t others = on->patience->turn_until;
    if (others > now && others <= now + LONGEST_TURN) return others == *mine;
    if (!atomic_compare_exchange_strong(&on->patience->turn_until, &others, until)) return false;
    *mine = until;
    return true;
}

void patience_turn_over(const struct spending *on, uint64_t *mine) {
    uint64_t own = *mine;
    if (own) atomic_compare_exchange_strong(&on->patience->turn_until, &own, 0);
    *mine = 0;
}
