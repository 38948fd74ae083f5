#include "moments.h"

#define WINDOW 2000000ULL /* agent/aliquot_agent/isolation/turns.py has the same */
#define MOST UINT32_MAX   /* 2000 processes all the time, of which an account has no more than half */

static void add(_Atomic uint64_t *place, uint32_t number, uint64_t ns) {
    uint64_t old = *place, fresh;
    do {
        uint32_t stands = (uint32_t)(old >> 32);
        if ((int32_t)(stands - number) > 0) return; /* whoever comes so late is of a window that nobody asks for any more */
        uint64_t sum = stands == number ? (uint32_t)old + ns : ns;
        fresh = (uint64_t)number << 32 | (sum < MOST ? sum : MOST);
    } while (!atomic_compare_exchange_weak(place, &old, fresh));
}

void moments_add(struct moments *moments, uint64_t from, uint64_t until) {
    if (until > MOMENTS * WINDOW && from < until - (MOMENTS - 1) * WINDOW) from = until - (MOMENTS - 1) * WINDOW;
    while (from < until) {
        uint64_t number = from / WINDOW, end = (number + 1) * WINDOW;
        if (end > until) end = until;
        add(&moments->in_flight[number % MOMENTS], (uint32_t)number, end - from);
        from = end;
    }
}
