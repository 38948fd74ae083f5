/* Puts the real driver behind this library when it is loaded.
 *
 * Every exported name is a jump through driver_stubs. Until the limits, the account and the real driver are all there,
 * every jump ends in a refusal: a container whose limits can't be read gets no GPU, never a GPU without limits. */
#include <dlfcn.h>
#include <stdio.h>

#include "account.h"
#include "limits.h"
#include "table.h"

void *driver_stubs[DRIVER_NAMES], *driver_real[DRIVER_NAMES];

static CUresult not_ready(void) {
    return CUDA_ERROR_SYSTEM_NOT_READY;
}

static CUresult refused(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult not_found(void) {
    return CUDA_ERROR_NOT_FOUND;
}

static void point_all(void *to) {
    for (int i = 0; i < DRIVER_NAMES; i++) driver_stubs[i] = driver_real[i] = to;
}

static void point_at(void *driver) {
    for (int i = 0; i < DRIVER_NAMES; i++) {
        void *real = dlsym(driver, driver_functions[i].name);
        driver_real[i] = real ? real : (void *)not_found;
        driver_stubs[i] = driver_functions[i].rule == REFUSED ? (void *)refused : driver_real[i];
    }
}

__attribute__((constructor)) static void load(void) {
    point_all((void *)not_ready);
    if (!limits_open() || !account_open()) return;
    void *driver = dlopen(limits->driver, RTLD_NOW | RTLD_LOCAL);
    if (driver)
        point_at(driver);
    else
        fprintf(stderr, "aliquot: the driver can't be loaded: %s\n", dlerror());
}
