/* What each program of the tests begins with that speaks to the driver: found as any program finds it, by
 * dlopen("libcuda.so.1"), and what it holds of the GPU. */
#pragma once
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

#define MOST_HELD 65536

struct held {
    int way;
    uint64_t value, more;
};

extern void *driver;
extern CUcontext context;
extern struct held held[MOST_HELD];
extern int held_count;

/* A function of the driver's; without it the program ends. */
void *find(const char *name);
#define CU(name) ((__typeof__(&name))find(#name))

CUresult take_linear(struct held *h, uint64_t bytes);
