/* What one call costs: prints the median over batches, in nanoseconds, of each kind of call. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "driver.h"

#define BATCHES 400
#define CALLS 50

static void *driver;

static void *find(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) exit(3);
    return found;
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void median(const char *name, double *batches) {
    qsort(batches, BATCHES, sizeof *batches, compare);
    printf("%s %.1f\n", name, batches[BATCHES / 2] / CALLS);
}

static void allocations(const char *name, size_t bytes) {
    __typeof__(&cuMemAlloc_v2) allocate = find("cuMemAlloc_v2");
    __typeof__(&cuMemFree_v2) release = find("cuMemFree_v2");
    double taken[BATCHES], given[BATCHES];
    char of_free[64];
    for (int batch = 0; batch < BATCHES; batch++) {
        CUdeviceptr address[CALLS];
        double start = now_ns();
        for (int i = 0; i < CALLS; i++) allocate(&address[i], bytes);
        double middle = now_ns();
        for (int i = 0; i < CALLS; i++) release(address[i]);
        taken[batch] = middle - start;
        given[batch] = now_ns() - middle;
    }
    snprintf(of_free, sizeof of_free, "%s-free", name);
    median(name, taken);
    median(of_free, given);
}

static void launches(void) {
    __typeof__(&cuLaunchKernel) launch = find("cuLaunchKernel");
    __typeof__(&cuCtxSynchronize) wait = find("cuCtxSynchronize");
    double batches[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now_ns();
        for (int i = 0; i < CALLS; i++) launch(NULL, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        batches[batch] = now_ns() - start;
        wait();
    }
    median("launch", batches);
}

int main(void) {
    CUcontext context;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || ((__typeof__(&cuInit))find("cuInit"))(0)) return 2;
    if (((__typeof__(&cuDevicePrimaryCtxRetain))find("cuDevicePrimaryCtxRetain"))(&context, 0)) return 2;
    ((__typeof__(&cuCtxSetCurrent))find("cuCtxSetCurrent"))(context);
    allocations("large", 4 << 20);
    allocations("small", 1000);
    launches();
    return 0;
}
