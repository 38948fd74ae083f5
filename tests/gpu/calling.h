/* What each program of the tests begins with that speaks to the driver: found as any program finds it, by
 * dlopen("libcuda.so.1"), and what it holds of the GPU. */
#pragma once
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

static void *driver;
static CUcontext context;

static void *find(const char *name) {
    void *found = dlsym(driver, name);
    if (found) return found;
    fprintf(stderr, "no %s\n", name);
    exit(3);
}

#define CU(name) ((__typeof__(&name))find(#name))

struct held {
    int way;
    uint64_t value, more;
};

static struct held held[MOST_HELD];
static int held_count;

static CUresult take_linear(struct held *h, uint64_t bytes) {
    return CU(cuMemAlloc_v2)((CUdeviceptr *)&h->value, bytes);
}
