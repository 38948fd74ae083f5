/* The mean of it is not enough: what others get beside 1 to 8 in turn is a third more than beside 4.5.
 *
 * Whoever pays looks at what all have paid. Each 4 ms for which any had work in flight, the sum of all their times says
 * how many they were; between two numbers that are counted it goes to both, so that the mean stays. Nobody has to say
 * that he begins or ends, so nobody who is killed is counted for ever. */
#include "crowd.h"

#define WINDOW 4000000ULL

/* agent/aliquot_agent/isolation/turns.py has the same. */
static const double sizes[CROWD_SIZES] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 128, 1024};

static void add(struct crowd *crowd, double processes, uint64_t ns) {
    int above = 1;
    while (above < CROWD_SIZES - 1 && sizes[above] < processes) above++;
    double part = (processes - sizes[above - 1]) / (sizes[above] - sizes[above - 1]);
    uint64_t more = part <= 0 ? 0 : part >= 1 ? ns : (uint64_t)((double)ns * part);
    atomic_fetch_add(&crowd->ns[above], more);
    atomic_fetch_add(&crowd->ns[above - 1], ns - more);
}

void crowd_count(const struct meter *meter, struct crowd *crowd) {
    uint64_t busy = meter->busy, counted = crowd->busy;
    if (busy < counted + WINDOW || !atomic_compare_exchange_strong(&crowd->busy, &counted, busy)) return;
    uint64_t in_flight = meter->in_flight, before = atomic_exchange(&crowd->in_flight, in_flight);
    if (in_flight > before) add(crowd, (double)(in_flight - before) / (double)(busy - counted), busy - counted);
}
