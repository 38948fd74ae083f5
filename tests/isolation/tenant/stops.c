/* Threads that are stopped inside the interposer, at whichever of its steps: it takes its locks by names of libc's, and ours
 * are found before those. */
#include <errno.h>
#include <sched.h>

#include "waiters.h"

/* Stopped where it lets go of a lock for the so many-th time, until it may go on. */
struct stopped {
    struct waiter waiter;
    unsigned unlocks;
    _Atomic bool stands, may_go_on;
};

/* Takes more when it has what it waited for in the driver, unless a lock holds it up. */
struct passing {
    struct waiter waiter;
    uint64_t more;
    CUresult result;
    _Atomic bool held_up, over;
};

static _Thread_local struct stopped *stopped;
static _Thread_local struct passing *passing;

typedef int of_mutex(pthread_mutex_t *mutex);

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static of_mutex *next;
    if (!next) next = (of_mutex *)dlsym(RTLD_NEXT, __func__);
    int result = passing ? pthread_mutex_trylock(mutex) : EBUSY;
    if (result != EBUSY) return result;
    if (passing) passing->held_up = true;
    return next(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    static of_mutex *next;
    if (!next) next = (of_mutex *)dlsym(RTLD_NEXT, __func__);
    int result = next(mutex);
    if (!stopped || --stopped->unlocks) return result;
    stopped->stands = true;
    while (!stopped->may_go_on) sched_yield();
    return result;
}

static void *take_and_stop(void *with) {
    struct stopped *it = with;
    stopped = it;
    return take_it(&it->waiter);
}

static void *take_and_take_more(void *with) {
    struct passing *it = with;
    CUdeviceptr more;
    passing = it;
    take_it(&it->waiter);
    it->result = CU(cuMemAlloc_v2)(&more, it->more);
    if (!it->result) CU(cuMemFree_v2)(more);
    it->over = true;
    return NULL;
}

static void give_up(const struct waiter *waiter) {
    if (!waiter->result) CU(cuMemFree_v2)(waiter->address);
}

/* A block is charged and in the driver; another one, for which there is no room, is stopped at one of its steps. Then the first
 * comes into the granule as far as it gets, and takes more; and the other one goes on. Tells what each of the three calls was
 * answered, and whether the step was one. */
void meet_at_step(unsigned step, uint64_t charged, uint64_t squeezed, uint64_t more) {
    struct passing first = {.waiter = {.bytes = charged, .come = new_words()}, .more = more};
    struct stopped second = {.waiter = {.bytes = squeezed, .come = (_Atomic int *)1}, .unlocks = step};
    pthread_create(&first.waiter.thread, NULL, take_and_take_more, &first);
    await(&first.waiter);
    pthread_create(&second.waiter.thread, NULL, take_and_stop, &second);
    while (!second.stands && !second.waiter.over) sched_yield();
    *first.waiter.come = 3;
    while (!first.held_up && !first.over) sched_yield();
    second.may_go_on = true;
    pthread_join(first.waiter.thread, NULL);
    pthread_join(second.waiter.thread, NULL);
    give_up(&first.waiter);
    give_up(&second.waiter);
    printf("%d %d %d %d\n", first.waiter.result, first.result, second.waiter.result, second.stands);
}
