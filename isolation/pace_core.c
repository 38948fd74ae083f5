#include "pace_core.h"

#include "patience.h"

#define MS 1000000ULL
#define MARKS 2
#define MARK_WORK (6 * MS) /* work between two marks */
#define OWN_WORK (4 * MS)  /* the least of it, by one of several processes */
#define MARK_TIME (MS / 2) /* time between two marks, of a process that launches seldom */
#define MOST_LAUNCHES 512
#define LONG_LAUNCH (20 * MS)
#define SPREAD (2 * MS) /* by then what the last one takes has begun to be paid */
#define GRANTED (10 * MS)
#define UNKNOWN_LAUNCH (1000 * MS)
#define LONGEST_CALL (1000 * MS)

void pacing_begin(struct pacing *pacing) {
    *pacing = (struct pacing){.launches_a_mark = 1};
}

/* ------------------------------------------------------------------ launches */

static bool is_deep(const struct pacing *pacing, bool crowded) {
    uint64_t next = pacing->unmarked + pacing->launching;
    if (!pacing->launch_ns) return pacing->pending || next;
    return pacing->pending >= MARKS && (next >= pacing->launches_a_mark || crowded);
}

/* Or may be. */
static bool is_long(const struct pacing *pacing) {
    return !pacing->launch_ns || pacing->launch_ns >= LONG_LAUNCH;
}

static bool has_turn(struct pacing *pacing, const struct spending *on, uint64_t now) {
    uint64_t lasts = pacing->launch_ns ? pacing->launch_ns : UNKNOWN_LAUNCH;
    if (!is_long(pacing) || meter_is_whole(on, now)) return true;
    bool spread = !pacing->in_flight_from || now > pacing->asked_at + SPREAD;
    return spread && patience_turn(on, &pacing->turn_until, now + lasts, now);
}

/* Who owes nothing may launch as much as two marks stand behind, though some of it is at work meanwhile: short kernels would
 * else come so few at a time that the GPU's own turn is over with the first of them. */
static bool is_paid(struct pacing *pacing, const struct spending *on, uint64_t now) {
    if (pacing->granted && now < pacing->granted_until) {
        pacing->granted--;
        return true;
    }
    if (meter_due(on, now)) return false;
    if (!has_turn(pacing, on, now)) return false;
    if (is_long(pacing)) return true;
    pacing->granted = 2 * pacing->launches_a_mark - 1;
    pacing->granted_until = now + GRANTED;
    return true;
}

enum passing pacing_ask(struct pacing *pacing, const struct spending *on, bool crowded, uint64_t waits_since,
                        uint64_t now) {
    if (!is_deep(pacing, crowded) && is_paid(pacing, on, now)) return PASSES;
    return patience_ends(on, waits_since, now) ? ESCAPES : STAYS;
}

bool pacing_launch(struct pacing *pacing, uint64_t now) {
    bool was_idle = !pacing->in_flight_from;
    pacing->asked_at = now;
    if (was_idle) pacing->began_at = pacing->in_flight_from = now;
    pacing->launching++;
    return was_idle;
}

/* Goes by the time at which the launch was let pass: to ask for another would be a quarter of all that it costs. */
bool pacing_launched(struct pacing *pacing, bool noted) {
    if (pacing->launching) pacing->launching--;
    pacing->unmarked += noted;
    bool due = !noted || pacing->unmarked >= pacing->launches_a_mark || pacing->asked_at > pacing->marked_at + MARK_TIME;
    return due && pacing_may_mark(pacing);
}

bool pacing_may_mark(const struct pacing *pacing) {
    return pacing->pending < MARKS;
}

unsigned pacing_places(const struct pacing *pacing) {
    return MARK_PLACES - pacing->pending;
}

unsigned pacing_place(const struct pacing *pacing) {
    return (pacing->first + pacing->pending) % MARK_PLACES;
}

void pacing_marked(struct pacing *pacing, uint64_t launches, bool noted, uint64_t now) {
    pacing->behind[pacing_place(pacing)] = launches;
    if (noted) pacing->unmarked -= launches;
    pacing->pending++;
    pacing->marked_at = now;
}

/* ------------------------------------------------------------------ looks */

/* So many launches took so long, beside others' work as a rule: a mark is 6 ms of what the container had meanwhile, and
 * more than a turn of each process. By time alone it would be part of a turn where four contend, and who comes with so
 * little waits for all the others each time. Twice as many at once at most: a look that came late saw them all end together. */
static void learn(struct pacing *pacing, const struct spending *on, uint64_t launches, uint64_t ns) {
    pacing->launch_ns = ns / launches + 1;
    uint64_t work = meter_work(on, pacing->launch_ns, &pacing->metered) + 1;
    uint64_t own = meter_weighed(on, pacing->launch_ns) + 1, least = OWN_WORK / own;
    uint64_t fitting = MARK_WORK / work > least ? MARK_WORK / work : least, most = 2 * pacing->launches_a_mark;
    if (most > MOST_LAUNCHES) most = MOST_LAUNCHES;
    pacing->launches_a_mark = fitting < 1 ? 1 : fitting > most ? most : fitting;
}

void pacing_reached(struct pacing *pacing, const struct spending *on, unsigned marks, uint64_t now) {
    uint64_t launches = 0, from = pacing->finished_at > pacing->began_at ? pacing->finished_at : pacing->began_at;
    for (; marks; marks--) {
        launches += pacing->behind[pacing->first];
        pacing->first = (pacing->first + 1) % MARK_PLACES;
        pacing->pending--;
        pacing->finished_at = now;
    }
    if (!launches) return;
    learn(pacing, on, launches, now - from);
    patience_took(on->patience, now - from);
}

/* A thread that was about to launch and never came back may have ended there. */
static bool works(const struct pacing *pacing, uint64_t now) {
    return pacing->pending || (pacing->launching && now < pacing->asked_at + LONGEST_CALL);
}

bool pacing_pay(struct pacing *pacing, const struct spending *on, bool crowded, uint64_t now) {
    meter_pay(on, now - pacing->in_flight_from, now);
    pacing->in_flight_from = now;
    return crowded || !works(pacing, now);
}

void pacing_done(struct pacing *pacing, uint64_t launches, uint64_t now) {
    pacing->unmarked -= launches;
    if (!pacing->launch_ns && launches) pacing->launch_ns = (now - pacing->began_at) / launches + 1;
    if (!pacing->pending) pacing->finished_at = now;
}

bool pacing_is_over(const struct pacing *pacing, uint64_t launches, uint64_t now) {
    uint64_t last = pacing->asked_at > pacing->finished_at ? pacing->asked_at : pacing->finished_at;
    return now >= last + launches * pacing->launch_ns;
}

void pacing_rest(struct pacing *pacing, const struct spending *on, uint64_t now) {
    if (works(pacing, now) || pacing->unmarked) return;
    pacing->in_flight_from = pacing->launching = 0;
    patience_turn_over(on, &pacing->turn_until);
}

void pacing_escapes(struct pacing *pacing) {
    pacing->escaped_at = pacing->asked_at;
}

void pacing_escaped(struct pacing *pacing, const struct spending *on, uint64_t now) {
    patience_ended(on, pacing->escaped_at, now);
    pacing->escaped_at = 0;
}
