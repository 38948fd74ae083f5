/* Threads that wait inside the driver until another one has come between. */
#pragma once
#include <pthread.h>

#include "tenant.h"

/* Who takes managed memory, and waits in the driver by a word: when it is there, or before. */
struct waiter {
    pthread_t thread;
    CUdeviceptr address;
    uint64_t bytes;
    CUresult result;
    _Atomic int *come;
    bool before;
    _Atomic bool over; /* its call is */
};

/* What such a thread does. */
void *take_it(void *with);

/* Until its call waits in the driver. Where the call is over and never did, the program ends with a word of that. */
void await(const struct waiter *waiter);

void take_and_wait(struct waiter *waiter);
void let_go(struct waiter *waiter);

/* Words to wait by, none of them come. They lie where 32 bits can say it. */
_Atomic int *new_words(void);
