/* Managed memory that a program places on another GPU of its slice than the one that it was charged to. Pure: whoever
 * holds this is told what is taken, placed and freed, charges what it says, and tells when a stream has come so far
 * (managed.c for a container; tests/isolation/test_managed_core.py for a driver that does things as late as it likes).
 *
 * How it works. A block is charged whole to its home, the GPU of the context that it was taken in, and stays so: the
 * driver may bring any of it back there. What is placed on another GPU is charged there besides, by granules; one in
 * which several blocks lie is charged once, for as long as one of them may be there. What a call brings is charged before
 * the driver is asked. What it takes away stays charged until its stream has come so far (a passage); and for that all
 * that brought the block must be known to lie before: one stream did, which still lives, and no call to another place was
 * under way for the granule meanwhile. What nobody can put in order stays until it is freed, so too what a thread's own default stream
 * does, which ends with the thread, and copies of what is mostly read. Where a block is advised to lie it stays charged until
 * that is taken back and it is placed elsewhere, for the driver brings it there again by itself.
 * What must hold: whatever GPU a granule of a block may lie on, its home aside, there it is charged; also of a block that
 * is taken where a call that is under way places something else, which was there before, and before its address is known. */
#ifndef ALIQUOT_MANAGED_CORE_H
#define ALIQUOT_MANAGED_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limits.h"
#include "map.h"
#include "spans.h"

struct managed;

/* What a call is given to: a stream, of that context if it is a default one, and else of that green context or none. */
struct lane {
    const void *stream, *context;
    /* A thread's own default stream; what is of no stream; a stream that has ended meanwhile. */
    enum { BY_STREAM, BY_THREAD, BY_ADVICE, BY_ENDED } by;
};

/* Where nobody tells which. */
#define UNKNOWN_CONTEXT ((const void *)UINTPTR_MAX)

/* A lane that brought blocks where they are. */
struct bringer {
    struct bringer *next;
    struct lane lane;
    uint64_t blocks;
    bool ended;
};

struct range {
    uint64_t address, bytes;
    int gpu; /* to which it goes; -1: to none of the slice's */
};

/* A call that places ranges. */
struct placing {
    struct placing *next;
    struct lane lane;
    bool copies;    /* it makes what it names mostly read */
    uint64_t ended; /* at which step; 0: it is under way */
    size_t count;
    struct range ranges[];
};

/* A block that is being taken: where it will lie nobody knows yet. A call that is under way meanwhile may bring all of it to
 * a GPU that it names: there it is guarded, which is charged as if it lay there, until what it needs is known. */
struct taking {
    struct taking *next;
    uint64_t begun; /* at which step */
    uint64_t guard; /* bytes */
    int home;
    uint16_t guarded; /* by bits, on which GPUs */
};

/* What a call was given for, until its stream has come so far. */
struct passage {
    struct passage *next;
    struct managed *blocks;
    void *event, *context; /* whoever holds this knows what they are */
    const void *owner;     /* the lane's context */
};

struct managed_core {
    struct span *blocks;
    struct map shared; /* how many blocks are charged in a granule that one of them fills in part, by granule and GPU */
    struct placing *placings, *past;
    struct vacated *vacated;
    struct taking *takings;
    struct bringer *bringers;
    struct passage *passages;
    struct passage *over; /* whoever holds this is to free them */
    uint64_t steps;
    uint64_t freed[MOST_GPUS]; /* bytes that are no longer charged */
};

/* What is about to be charged, by GPU. */
struct fresh {
    uint64_t bytes[MOST_GPUS];
};

/* A block is about to be taken; whether calls are under way that it is to be guarded against; what that takes; and that it
 * was charged: the driver is asked only then. */
void managed_core_taking(struct managed_core *core, struct taking *taking, int home, uint64_t bytes);
bool managed_core_is_met(const struct managed_core *core, const struct taking *taking);
void managed_core_guard(const struct managed_core *core, const struct taking *taking, struct fresh *fresh);
void managed_core_guarded(struct managed_core *core, struct taking *taking);

/* It was taken, and has of its guards what it needs besides its home. NULL: this process has no memory. */
struct managed *managed_core_enter(struct managed_core *core, struct taking *taking, struct range block);

/* Managed memory that was not taken as a block, which a call is about to place: to where blocks lie from an address on, itself
 * if none does there; and what was found where none does. It has no home: on whichever GPU it is placed it is charged. NULL: a
 * call under way may have met it, which did not charge it, or this process has no memory. */
uint64_t managed_core_known_until(const struct managed_core *core, uint64_t address);
struct managed *managed_core_find(struct managed_core *core, struct range found);

/* It was, or was not; it needs no guard any more. */
void managed_core_taken(struct managed_core *core, struct taking *taking);

/* The driver is about to be asked to free it: what lies there next is met by no call that has ended by now. */
void managed_core_vacated(struct managed_core *core, const struct managed *block);

/* It was freed. */
void managed_core_leave(struct managed_core *core, struct managed *block);

struct placing *managed_placing(const struct range *ranges, size_t count, struct lane lane);

/* Whether blocks are being taken that are to be guarded against it. */
bool managed_core_meets(const struct managed_core *core, const struct placing *placing);

/* What a call is about to bring, and those guards; false: this process has no memory. Then whether it fits: it is under way,
 * or forgotten and nothing of it is charged. */
bool managed_core_plan(struct managed_core *core, const struct placing *placing, struct fresh *fresh);
void managed_core_begin(struct managed_core *core, struct placing *placing);
void managed_core_drop(struct managed_core *core, const struct placing *placing);

/* Whether it matters when its stream has come so far; then it is over: with the passage, or NULL where it does not matter
 * or nobody can tell, and whether it did what it was to do. */
bool managed_core_is_followed(const struct managed_core *core, const struct placing *placing);
void managed_core_end(struct managed_core *core, struct placing *placing, struct passage *passage, bool done);

/* The stream has come so far, or (unknown) nobody can tell any more: then it stays charged where it was. */
void managed_core_passed(struct managed_core *core, struct passage *passage, bool known);

/* The passage of the first block in a range after that one that has any; NULL: there is no more. */
struct passage *managed_core_passing(const struct managed_core *core, struct range range, struct managed **after);

/* A stream is about to end, and its number may be another one's; or those of a green context, known as either. */
void managed_core_let_go(struct managed_core *core, const void *stream);
void managed_core_let_green_go(struct managed_core *core, const void *green, const void *part);

/* Whether that may be its context. */
bool owner_may_be(const void *context, const void *green, const void *part);

#endif
