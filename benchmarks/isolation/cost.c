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

/* A graph that allocates and frees, or one that does nothing. */
static void graph_launches(const char *name, size_t bytes) {
    __typeof__(&cuGraphLaunch) launch = find("cuGraphLaunch");
    __typeof__(&cuCtxSynchronize) wait = find("cuCtxSynchronize");
    CUDA_MEM_ALLOC_NODE_PARAMS asked = {.properties = {.type = 1, .location = {.type = LOCATION_DEVICE}}, .bytes = bytes};
    double batches[BATCHES];
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    if (((__typeof__(&cuGraphCreate))find("cuGraphCreate"))(&graph, 0)) exit(4);
    if (bytes && ((__typeof__(&cuGraphAddMemAllocNode))find("cuGraphAddMemAllocNode"))(&node, graph, NULL, 0, &asked)) exit(4);
    if (bytes && ((__typeof__(&cuGraphAddMemFreeNode))find("cuGraphAddMemFreeNode"))(&node, graph, &node, 1, asked.address))
        exit(4);
    if (((__typeof__(&cuGraphInstantiateWithFlags))find("cuGraphInstantiateWithFlags"))(&exec, graph, 0)) exit(4);
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now_ns();
        for (int i = 0; i < CALLS; i++) launch(exec, NULL);
        batches[batch] = now_ns() - start;
        wait();
    }
    median(name, batches);
}

/* Managed memory, and what is placed on a second GPU or on the host. */
static void managed(void) {
    __typeof__(&cuMemAllocManaged) allocate = find("cuMemAllocManaged");
    __typeof__(&cuMemFree_v2) release = find("cuMemFree_v2");
    __typeof__(&cuMemPrefetchAsync) place = find("cuMemPrefetchAsync");
    double taken[BATCHES], placed[BATCHES], given[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        CUdeviceptr address[CALLS];
        double start = now_ns();
        for (int i = 0; i < CALLS; i++) allocate(&address[i], 4 << 20, 1);
        double middle = now_ns();
        for (int i = 0; i < CALLS; i++) place(address[i], 4 << 20, i % 2 ? 1 : -1, NULL);
        double end = now_ns();
        for (int i = 0; i < CALLS; i++) release(address[i]);
        taken[batch] = middle - start;
        placed[batch] = end - middle;
        given[batch] = now_ns() - end;
    }
    median("managed", taken);
    median("managed-place", placed);
    median("managed-free", given);
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
    graph_launches("graph-launch", 0);
    graph_launches("graph-launch-allocating", 4 << 20);
    managed();
    return 0;
}
