#include "watch.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#define LOOK_EVERY 1000000L /* ns */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wakes = PTHREAD_COND_INITIALIZER;
static bool (*look_at_all)(void);
static bool watched, started;

static void *watch(void *nothing) {
    for (;;) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY}, NULL);
        if (look_at_all()) continue;
        pthread_mutex_lock(&lock);
        watched = false;
        while (!watched) pthread_cond_wait(&wakes, &lock);
        pthread_mutex_unlock(&lock);
    }
    return nothing;
}

static void start(void) {
    if (!started) {
        sigset_t all, old;
        pthread_t thread;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old); /* the program's signals are not for our thread */
        started = pthread_create(&thread, NULL, watch, NULL) == 0;
        if (started) pthread_detach(thread);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    watched = true;
    pthread_cond_signal(&wakes);
}

void watch_wake(bool (*look)(void)) {
    pthread_mutex_lock(&lock);
    look_at_all = look;
    if (!watched) start();
    pthread_mutex_unlock(&lock);
}

void watch_forget(void) {
    watched = started = false;
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&wakes, NULL);
}
